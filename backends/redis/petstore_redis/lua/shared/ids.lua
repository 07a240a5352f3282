-- Ids: each partition has a counter for pets and one for orders. A failover may lose the last
-- writes, and with them the state of the counters; several servers may then continue from the same
-- state, none knowing of the others.
-- So ids are divided into ID_RANGES ranges, and each server that takes over draws one: RUN ids in a
-- row belong to range 0, the next RUN to range 1, and after the last range it is range 0 again.
-- A server assigns only ids of its own range, always upwards. Range 0 is that of the server on
-- which the store was created. It alone has the last run of all, for stores with the highest ids.

-- Returns the replication id: another server, or the same one after a restart, has another one.
local function replication_id()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
end

-- Returns the id range of this server. One that has taken over draws one, never that of the server
-- before it.
local function draw_id_range(known, id_range)
  id_range = tonumber(id_range or 0)
  local replid = replication_id()
  if known == replid then return id_range end
  if known then -- the replication id is random: 40 hexadecimal digits
    local drawn = tonumber(string.sub(replid, 1, 8), 16) % (ID_RANGES - 2) + 1
    id_range = drawn ~= id_range and drawn or drawn % (ID_RANGES - 2) + 1
  end
  redis.call('HSET', key.meta, 'replid', replid, 'id_range', id_range)
  return id_range
end

-- Uses what store.lua has read. Returns the next id of a counter in decimal, or nil if there is none
-- left. `save_count` must follow.
local drawn
local function next_id(counter)
  drawn = drawn or draw_id_range(replid, id_range)
  local count = counts[counter]
  local id = count * partitions + partition + 1
  if math.floor(id / RUN) % ID_RANGES ~= drawn then -- a new range, or the run has ended
    local round = RUN * ID_RANGES
    local first = math.floor(id / round) * round + drawn * RUN
    if first < id then first = first + round end
    if first > MAX_ID and drawn == 0 then first = math.max(id, MAX_ID + 1 - RUN) end
    count = math.ceil((first - partition - 1) / partitions)
    id = count * partitions + partition + 1
  end
  if id > MAX_ID then return nil end
  counts[counter] = count + 1
  return string.format('%.0f', id)
end

-- Stores what `next_id` has counted.
local function save_count(counter)
  redis.call('HSET', key.meta, counter, string.format('%.0f', counts[counter]))
end
