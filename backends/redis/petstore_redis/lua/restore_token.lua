-- Stores a record of another store, or the same one again: WAIT needs a write to wait for.
-- ARGV: token, fingerprint, expiry, id
-- Returns {DONE}, or {CONFLICT} if a different record has the token.
local token, fingerprint, expiry, id = unpack(ARGV, 1, 4)
local record = fingerprint .. expiry .. ' ' .. id
local stored = redis.call('HGET', key.tokens, token)
if stored and stored ~= record then return {CONFLICT} end
redis.call('HSET', key.tokens, token, record)
redis.call('ZADD', key.expiries, expiry, token)
return {DONE}
