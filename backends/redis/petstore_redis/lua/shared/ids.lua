-- Ids: each partition has a counter for pets and one for orders. A failover may lose the last
-- writes, and with them the state of the counters. The replication id shows that another server,
-- or the same one after a restart, has taken over: LEAP ids are skipped then, so that no id that
-- was already returned is assigned again.

-- Does nothing without GUARD, for servers that have no INFO.
local function check_master()
  if not GUARD then return end
  local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
  local known = redis.call('HGET', key.meta, 'replid')
  if known ~= replid then
    redis.call('HSET', key.meta, 'replid', replid)
    if known then
      redis.call('HINCRBY', key.meta, 'pets', LEAP)
      redis.call('HINCRBY', key.meta, 'orders', LEAP)
    end
  end
end

-- Returns the next id of a counter in decimal, or nil if there is none left.
local function next_id(counter, partitions, partition)
  check_master()
  local count = redis.call('HINCRBY', key.meta, counter, 1)
  local id = (count - 1) * partitions + partition + 1
  if id > MAX_ID then return nil end
  return string.format('%.0f', id)
end
