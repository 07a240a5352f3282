-- Tokens. `tokens` holds the record of a write: 32 bytes of fingerprint, then expiry and id in
-- decimal. `expiries` has the tokens of records and reservations by their expiry. The empty token
-- stands for a write without one.

-- Returns what a script returns for a token that was used before: {REPLAYED, id, expiry} or
-- {TOKEN_REUSED}. Returns nil if the write must be executed.
local function check_token(token, fingerprint, now)
  if token == '' then return end
  local record = redis.call('HGET', key.tokens, token)
  local expiry, id = string.match(record and string.sub(record, 33) or '', '^(%d+) (%d+)$')
  if id and tonumber(expiry) > tonumber(now) then
    if string.sub(record, 1, 32) ~= fingerprint then return {TOKEN_REUSED} end
    count_revision()
    return {REPLAYED, id, expiry}
  end
  if partitions == '1' then return end
  local reserved_until, _, _, reserved = read_reservation(token)
  if reserved_until > tonumber(now) and reserved ~= fingerprint then return {TOKEN_REUSED} end
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
    redis.call('HDEL', key.tokens, token)
    if partitions ~= '1' then redis.call('HDEL', key.reservations, token) end
  end
end

local function record(token, fingerprint, now, expiry, id)
  if token == '' then return end
  remove_expired(now)
  redis.call('HSET', key.tokens, token, fingerprint .. expiry .. ' ' .. id)
  redis.call('ZADD', key.expiries, expiry, token)
end
