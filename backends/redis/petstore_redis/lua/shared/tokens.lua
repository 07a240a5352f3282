-- Tokens. `tokens` holds the record of a write: 32 bytes of fingerprint, then expiry and id in
-- decimal. `expiries` has the tokens of records and reservations by their expiry. The empty token
-- stands for a write without one.

-- What this script has recorded: by token, and as arguments for `tokens` and `expiries`.
local recorded, records, ends, added = {}, {}, {}, {}

-- Returns what a script returns for a token that was used before: {REPLAYED, id, expiry} or
-- {TOKEN_REUSED}. Returns nil if the write must be executed.
local function check_token(token, fingerprint, now)
  if token == '' then return end
  local record = recorded[token] or redis.call('HGET', key.tokens, token)
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

-- Removes so many expired tokens. They must be expired by the clock of this server, too: a caller's
-- clock that jumps ahead removes nothing young.
local function remove_expired(now, count)
  local function expired(time)
    return redis.call('ZRANGEBYSCORE', key.expiries, '-inf', time, 'LIMIT', 0, count)
  end
  local found = expired(now)
  if #found == 0 then return end
  local time = redis.call('TIME')[1]
  if tonumber(time) < tonumber(now) then found = expired(time) end
  if #found == 0 then return end
  redis.call('ZREM', key.expiries, unpack(found))
  redis.call('HDEL', key.tokens, unpack(found))
  if partitions ~= '1' then redis.call('HDEL', key.reservations, unpack(found)) end
end

-- Notes the record of a write. `save_records` must follow.
local function record(token, fingerprint, now, expiry, id)
  if token == '' then return end
  recorded[token] = fingerprint .. expiry .. ' ' .. id
  append(records, token, recorded[token])
  append(ends, expiry, token)
  added[now] = (added[now] or 0) + 1
end

-- Stores what `record` has noted. Removes two expired tokens for each: one more than it adds.
local function save_records()
  if #records == 0 then return end
  for now, count in pairs(added) do remove_expired(now, 2 * count) end
  redis.call('HSET', key.tokens, unpack(records))
  redis.call('ZADD', key.expiries, unpack(ends))
end
