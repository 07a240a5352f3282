-- Stores a new pet.
-- ARGV: partitions, partition, JSON before the id, JSON after it, token, fingerprint, now, expiry
-- Returns {DONE, id}, {REPLAYED, id, expiry}, {TOKEN_REUSED}, or {FULL} if no id is left.
local partitions, partition, head, tail = unpack(ARGV, 1, 4)
local token, fingerprint, now, expiry = unpack(ARGV, 5, 8)
local known = check_token(token, fingerprint, now)
if known then return known end
local id = next_id('pets', partitions, partition)
if not id then return {FULL} end
add('pets', id, head .. id .. tail)
record(token, fingerprint, now, expiry, id)
return {DONE, id}
