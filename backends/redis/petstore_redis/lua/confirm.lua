-- Keeps a reservation until the record of its order expires.
-- ARGV: token, fingerprint, expiry of the record
-- Returns {DONE}.
local token, fingerprint, expiry = unpack(ARGV)
local _, _, _, reserved = read_reservation(token)
-- The reservation has expired, and another write has the token now.
if reserved and reserved ~= fingerprint then return {DONE} end
write_reservation(token, fingerprint, tonumber(expiry), 0, 0)
return {DONE}
