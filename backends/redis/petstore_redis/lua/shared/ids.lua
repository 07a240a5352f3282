-- Ids: each partition has a counter for pets and one for orders. A failover may lose the last
-- writes, and with them the state of the counters; several servers may then continue from the same
-- state, none knowing of the others.
-- So ids are divided into LANES lanes, and each server that takes over draws one: RUN ids in a row
-- belong to lane 0, the next RUN to lane 1, and after the last lane it is lane 0 again.
-- A server assigns only ids of its own lane, always upwards. Lane 0 is that of the server on which
-- the store was created. It alone has the last run of all, for stores with the highest ids.

-- Returns the replication id: another server, or the same one after a restart, has another one.
local function replication_id()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
end

-- Returns the lane of this server. One that has taken over draws a lane, never that of the server
-- before it. Without GUARD, for servers that have no INFO, it stays in the known one.
local function draw_lane(known, lane)
  lane = tonumber(lane or 0)
  if not GUARD then return lane end
  local replid = replication_id()
  if known == replid then return lane end
  if known then -- the replication id is random: 40 hexadecimal digits
    local drawn = tonumber(string.sub(replid, 1, 8), 16) % (LANES - 2) + 1
    lane = drawn ~= lane and drawn or drawn % (LANES - 2) + 1
  end
  redis.call('HSET', key.meta, 'replid', replid, 'lane', lane)
  return lane
end

-- Uses what store.lua has read. Returns the next id of a counter in decimal, or nil if there is none
-- left. `save_count` must follow.
local drawn
local function next_id(counter)
  drawn = drawn or draw_lane(replid, lane)
  local count = counts[counter]
  local id = count * partitions + partition + 1
  if math.floor(id / RUN) % LANES ~= drawn then -- the lane is a new one, or the run has ended
    local round = RUN * LANES
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
