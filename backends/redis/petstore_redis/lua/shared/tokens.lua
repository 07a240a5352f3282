-- Tokens. `retries` holds the record of a write: 32 bytes of fingerprint, then expiry and id in
-- decimal. `reservations` holds tokens whose order belongs to another partition: 32 bytes of
-- fingerprint, then expiry, pending (1 until the order is known, then 0) and holders, which is how
-- many requests in flight hold it. `expiries` has the tokens of both by their expiry. The empty
-- token stands for a write without one.

-- Returns expiry, pending, holders and fingerprint of a reservation: 0, 1, 0, nil if there is none.
local function read_reservation(token)
  local found = token ~= '' and redis.call('HGET', key.reservations, token)
  if not found then return 0, 1, 0, nil end
  local expiry, pending, holders = string.match(string.sub(found, 33), '^(%d+) (%d) (%d+)$')
  return tonumber(expiry), tonumber(pending), tonumber(holders), string.sub(found, 1, 32)
end

local function write_reservation(token, fingerprint, expiry, pending, holders)
  local state = string.format('%.0f %d %d', expiry, pending, holders)
  redis.call('HSET', key.reservations, token, fingerprint .. state)
  redis.call('ZADD', key.expiries, expiry, token)
end

-- Returns what a script returns for a token that was used before: {REPLAYED, id, expiry} or
-- {TOKEN_REUSED}. Returns nil if the write must be executed. A replay is counted, so that WAIT has
-- a write to wait for: the one that is replayed may not have reached the replicas.
local function check_token(token, fingerprint, now)
  local record = token ~= '' and redis.call('HGET', key.retries, token)
  local expiry, id = string.match(record and string.sub(record, 33) or '', '^(%d+) (%d+)$')
  if id and tonumber(expiry) > tonumber(now) then
    if string.sub(record, 1, 32) ~= fingerprint then return {TOKEN_REUSED} end
    redis.call('HINCRBY', key.meta, 'replays', 1)
    return {REPLAYED, id, expiry}
  end
  local reserved_until, _, _, reserved = read_reservation(token)
  if reserved_until > 0 and reserved_until > tonumber(now) and reserved ~= fingerprint then
    return {TOKEN_REUSED}
  end
end

-- Removes two expired tokens: one more than a write adds. They must be expired by the clock of this
-- server, too: a caller's clock that jumps ahead removes nothing young.
local function remove_expired(now)
  local function expired(time)
    return redis.call('ZRANGEBYSCORE', key.expiries, '-inf', time, 'LIMIT', 0, 2)
  end
  local found = expired(now)
  if #found == 0 then return end
  local time = redis.call('TIME')[1]
  if tonumber(time) < tonumber(now) then found = expired(time) end
  for _, token in ipairs(found) do
    redis.call('ZREM', key.expiries, token)
    redis.call('HDEL', key.retries, token)
    redis.call('HDEL', key.reservations, token)
  end
end

local function record(token, fingerprint, now, expiry, id)
  if token == '' then return end
  remove_expired(now)
  redis.call('HSET', key.retries, token, fingerprint .. expiry .. ' ' .. id)
  redis.call('ZADD', key.expiries, expiry, token)
end
