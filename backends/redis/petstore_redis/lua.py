"""What the scripts are made of: the keys of a partition, and functions that several share."""

from typing import Final

from petstore.contract import MAX_ID

LEAP: Final = 1_000_000
"""How many ids are left out when another server has become the master: those may be lost ones."""

KEYS: Final = (
    # counters (pets, orders, replid), and a count of writes that change nothing else
    "meta",
    # sorted sets of JSON by id: all, and those of each status
    "pets", "pets:available", "pets:pending", "pets:sold",
    "orders", "orders:placed", "orders:completed", "orders:cancelled",
    # hash: animal -> its order that is placed or completed
    "live",
    # hash: token -> fingerprint, until, id; sorted set of tokens by until; hash: see `reserve`
    "retries", "expiries", "reservations",
)  # fmt: skip

PRELUDE: Final = """
local K = {}
for at, name in ipairs({%s}) do K[name] = KEYS[at] end
local function field(text, pattern)
  return text and string.match(text, pattern)
end
local function status_of(item)
  return field(item, '^{"status":"(%%a+)",')
end
local function get(set, id)
  return redis.call('ZRANGEBYSCORE', K[set], id, id)[1]
end
local function add(set, id, item)
  redis.call('ZADD', K[set], id, item)
  local status = status_of(item)
  if status then redis.call('ZADD', K[set .. ':' .. status], id, item) end
end
local function move(set, id, item, status)
  local moved = '{"status":"' .. status .. '",' .. string.match(item, '^{"status":"%%a+",(.*)$')
  redis.call('ZREM', K[set], item)
  redis.call('ZREM', K[set .. ':' .. status_of(item)], item)
  add(set, id, moved)
  return moved
end
"""

# What a failover has lost is given out no second time: the id of the replication tells that another
# server, or the same one after a start, goes on with the counters.
GUARD: Final = """
local function check_master()
  local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%%w+)')
  local known = redis.call('HGET', K.meta, 'replid')
  if known ~= replid then
    redis.call('HSET', K.meta, 'replid', replid)
    if known then
      redis.call('HINCRBY', K.meta, 'pets', %d)
      redis.call('HINCRBY', K.meta, 'orders', %d)
    end
  end
end
"""
NO_GUARD: Final = "local function check_master() end"

IDS: Final = f"""
local function next_id(counter, partitions, partition)
  check_master()
  local count = redis.call('HINCRBY', K.meta, counter, 1)
  local id = (count - 1) * partitions + partition + 1
  if id > {MAX_ID} then return nil end
  return string.format('%.0f', id)
end
"""

RETRIES: Final = """
local function reservation(token)
  local found = token ~= '' and redis.call('HGET', K.reservations, token)
  if not found then return 0, 1, 0, nil end
  local expiry, pending, held = string.match(string.sub(found, 33), '^(%d+) (%d) (%d+)$')
  return tonumber(expiry), tonumber(pending), tonumber(held), string.sub(found, 1, 32)
end
local function find(token, fingerprint, now)
  local record = token ~= '' and redis.call('HGET', K.retries, token)
  local until_, id = string.match(record and string.sub(record, 33) or '', '^(%d+) (%d+)$')
  if id and tonumber(until_) > tonumber(now) then
    if string.sub(record, 1, 32) ~= fingerprint then return {3} end
    redis.call('HINCRBY', K.meta, 'replays', 1)
    return {2, id, until_}
  end
  local expiry, _, _, reserved = reservation(token)
  if expiry > 0 and expiry > tonumber(now) and reserved ~= fingerprint then return {3} end
end
local function reserve(token, fingerprint, expiry, pending, held)
  local state = string.format('%.0f %d %d', expiry, pending, held)
  redis.call('HSET', K.reservations, token, fingerprint .. state)
  redis.call('ZADD', K.expiries, expiry, token)
end
local function drop(now)
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', K.expiries, '-inf', now, 'LIMIT', 0, 2)) do
    redis.call('ZREM', K.expiries, token)
    redis.call('HDEL', K.retries, token)
    redis.call('HDEL', K.reservations, token)
  end
end
local function record(token, fingerprint, now, until_, id)
  if token == '' then return end
  drop(now)
  redis.call('HSET', K.retries, token, fingerprint .. until_ .. ' ' .. id)
  redis.call('ZADD', K.expiries, until_, token)
end
"""
