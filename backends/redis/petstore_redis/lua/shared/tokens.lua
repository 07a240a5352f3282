-- Tokens. `tokens` holds the record of a write: 32 bytes of fingerprint, then expiry and id in
-- decimal. `expiries` has the tokens of records and reservations by their expiry.

-- The records that this script has read or made, by token; those made as arguments for `tokens` and
-- `expiries`, too.
local recorded, records, ends, added = {}, {}, {}, {}

-- Reads the records of all tokens in the arguments. A call has `width` of them, the last of which is
-- its token, and three more unless that is empty. Must precede `check_token`, and all writes: it
-- fails if a key of tokens is of another type, or TIME is not allowed, so that no item is stored
-- without its record.
local function read_records(width)
  local tokens, n = {}, width
  while n <= #ARGV - 3 do
    if ARGV[n] ~= '' then
      tokens[#tokens + 1] = ARGV[n]
      n = n + 3
    end
    n = n + width
  end
  if #tokens == 0 then return end
  redis.call('ZCARD', key.expiries)
  redis.call('TIME')
  for n, record in ipairs(redis.call('HMGET', key.tokens, unpack(tokens))) do
    recorded[tokens[n]] = record
  end
end

-- Returns what a script returns for a token that was used before: {REPLAYED, id, expiry} or
-- {TOKEN_REUSED}. Returns nil if the write must be executed.
local function check_token(token, fingerprint, now)
  local record = recorded[token]
  if record then
    local expiry, id = string.match(record, '^(%d+) (%d+)$', 33)
    if id and tonumber(expiry) > tonumber(now) then
      if string.sub(record, 1, 32) ~= fingerprint then return {TOKEN_REUSED} end
      count_revision()
      return {REPLAYED, id, expiry}
    end
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
  recorded[token] = fingerprint .. expiry .. ' ' .. id
  local last = #records
  records[last + 1], records[last + 2] = token, recorded[token]
  ends[last + 1], ends[last + 2] = expiry, token
  added[now] = (added[now] or 0) + 1
end

-- Stores what `record` has noted. Removes two expired tokens for each: one more than it adds.
local function save_records()
  if #records == 0 then return end
  for now, count in pairs(added) do remove_expired(now, 2 * count) end
  redis.call('HSET', key.tokens, unpack(records))
  redis.call('ZADD', key.expiries, unpack(ends))
end
