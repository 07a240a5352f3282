-- Releases a reservation after its order was refused; the last holder removes it.
-- ARGV: token, fingerprint
-- Returns {DONE}.
local token, fingerprint = unpack(ARGV)
local expiry, pending, holders, reserved = read_reservation(token)
if pending == 0 or reserved ~= fingerprint then return {DONE} end
if holders > 1 then
  write_reservation(token, fingerprint, expiry, pending, holders - 1)
else
  redis.call('HDEL', key.reservations, token)
  redis.call('ZREM', key.expiries, token) -- there is no record: `reserve` would have returned it
end
return {DONE}
