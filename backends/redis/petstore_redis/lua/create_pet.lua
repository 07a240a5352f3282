-- Stores a new pet.
-- ARGV: JSON before the id, JSON after it, token, fingerprint, now, expiry
-- Returns {DONE, id}, {REPLAYED, id, expiry}, {TOKEN_REUSED}, or {FULL} if no id is left.
local head, tail, token, fingerprint, now, expiry = unpack(ARGV, 1, 6)
local known = check_token(token, fingerprint, now)
if known then return known end
local id = next_id('pets')
if not id then return {FULL} end
add('pets', id, head .. id .. tail)
record(token, fingerprint, now, expiry, id)
return {DONE, id}
