-- Comes first in each script for an open store. Its last arguments are the number of partitions,
-- which of them this is, and the identity of the store that the caller has opened: nothing is
-- written into a partition that was emptied, or replaced by another. Returns {OTHER_STORE} then.
local partitions, partition, identity = unpack(ARGV, #ARGV - 2)
local store, replid, id_range, pets, orders =
  unpack(redis.call('HMGET', key.meta, 'store', 'replid', 'id_range', 'pets', 'orders'))
if store ~= identity then return {OTHER_STORE} end
local counts = {pets = tonumber(pets or 0), orders = tonumber(orders or 0)}

-- Counts a write that assigns no id. WAIT has a write to wait for then, even if nothing else is
-- written: an earlier one, which is repeated, may not have reached the replicas.
local function count_revision()
  redis.call('HINCRBY', key.meta, 'revision', 1)
end
