-- Pets and orders: JSON in sorted sets, with the id as the score. `set` is 'pets' or 'orders'. An
-- item is in that set and, if it has a status, in the set of its status too. The status is the
-- first field of the JSON; the scripts rewrite it there and leave the rest as it is.

local function status_of(item)
  return string.match(item, '^{"status":"(%a+)",')
end

local function get(set, id)
  return redis.call('ZRANGEBYSCORE', key[set], id, id)[1]
end

-- Adds items of one set: {id, item, id, item, ...}.
local function add(set, items)
  local by_status = {}
  for n = 1, #items, 2 do
    local status = status_of(items[n + 1])
    if status then
      local some = by_status[status] or {}
      by_status[status] = some
      append(some, items[n], items[n + 1])
    end
  end
  redis.call('ZADD', key[set], unpack(items))
  for status, some in pairs(by_status) do
    redis.call('ZADD', key[set .. ':' .. status], unpack(some))
  end
end

-- Gives stored items of one set that have one status, {id, item, id, item, ...}, another one.
-- Returns the new items in the same form.
local function set_status(set, items, status)
  local old, new = {}, {}
  for n = 1, #items, 2 do
    old[#old + 1] = items[n + 1]
    local rest = string.match(items[n + 1], '^{"status":"%a+",(.*)$')
    append(new, items[n], '{"status":"' .. status .. '",' .. rest)
  end
  redis.call('ZREM', key[set], unpack(old))
  redis.call('ZREM', key[set .. ':' .. status_of(old[1])], unpack(old))
  add(set, new)
  return new
end
