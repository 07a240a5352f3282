-- Places an order of an available pet and makes the pet pending.
-- ARGV: JSON before the id, JSON after it, pet id, token, fingerprint, now, expiry
-- Returns {DONE, id, expiry}, {REPLAYED, id, expiry}, {TOKEN_REUSED}, {NOT_FOUND} if there is no
-- such pet, {CONFLICT} if it is not available, or {FULL} if no id is left.
local head, tail, pet_id, token, fingerprint, now, expiry = unpack(ARGV, 1, 7)
local known = check_token(token, fingerprint, now)
if known then return known end
local pet = get('pets', pet_id)
if not pet then return {NOT_FOUND} end
if status_of(pet) ~= 'available' then return {CONFLICT} end
local id = next_id('orders')
if not id then return {FULL} end
save_count('orders')
add('orders', {id, head .. id .. tail})
set_status('pets', pet_id, pet, 'pending')
redis.call('HSET', key.live, pet_id, id)
record(token, fingerprint, now, expiry, id)
return {DONE, id, expiry}
