-- Pets and orders: JSON in sorted sets, with the id as the score. `set` is 'pets' or 'orders'. An
-- item is in that set and, if it has a status, in the set of its status too. The status is the
-- first field of the JSON; the scripts rewrite it there and leave the rest as it is.

local function status_of(item)
  return string.match(item, '^{"status":"(%a+)",')
end

local function get(set, id)
  return redis.call('ZRANGEBYSCORE', key[set], id, id)[1]
end

-- Adds items of one set that have one status, or none: {id, item, id, item, ...}.
local function add(set, status, items)
  redis.call('ZADD', key[set], unpack(items))
  if status then redis.call('ZADD', key[set .. ':' .. status], unpack(items)) end
end

-- Gives stored items of one set that have one status, {id, item, id, item, ...}, another one.
-- Returns the new items in the same form.
local function set_status(set, items, status)
  local old, new = {}, {}
  local before, after = status_of(items[2]), '{"status":"' .. status .. '",'
  local rest = #before + 14
  for n = 1, #items, 2 do
    local item = items[n + 1]
    old[#old + 1] = item
    new[n], new[n + 1] = items[n], after .. string.sub(item, rest)
  end
  redis.call('ZREM', key[set], unpack(old))
  redis.call('ZREM', key[set .. ':' .. before], unpack(old))
  add(set, status, new)
  return new
end
