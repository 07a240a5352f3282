-- Comes first in each script that writes. Its last argument is the id of the store that the caller
-- has opened, so that nothing is written into a partition that was emptied, or replaced by another.
-- Returns {OTHER_STORE} then.
local store, replid, lane, pets, orders =
  unpack(redis.call('HMGET', key.meta, 'store', 'replid', 'lane', 'pets', 'orders'))
if store ~= ARGV[#ARGV] then return {OTHER_STORE} end
local counts = {pets = tonumber(pets or 0), orders = tonumber(orders or 0)}
