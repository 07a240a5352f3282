-- Reserves the token of an order whose pet is in another partition than the token, until the order
-- is known. A reservation that is no longer pending keeps its expiry.
-- ARGV: token, fingerprint, now, expiry
-- Returns {DONE}, {REPLAYED, id, expiry} or {TOKEN_REUSED}.
local token, fingerprint, now, expiry = unpack(ARGV)
read_records(1)
local known = check_token(token, fingerprint, now)
if known then return known end
local reserved_until, pending, holders = read_reservation(token)
if reserved_until <= tonumber(now) then reserved_until, pending, holders = 0, 1, 0 end
if pending == 1 then reserved_until = math.max(reserved_until, tonumber(expiry)) end
remove_expired(now, 2)
redis.call('HDEL', key.tokens, token) -- expired: a caller whose clock is slow must not find it
write_reservation(token, fingerprint, reserved_until, pending, holders + 1)
return {DONE}
