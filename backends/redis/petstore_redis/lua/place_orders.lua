-- Places orders of available pets and makes the pets pending.
-- ARGV: for each order JSON before the id, JSON after it, pet id, token, fingerprint, now, expiry
-- Returns {DONE, result, ...}. A result is {DONE, id, expiry}, {REPLAYED, id, expiry},
-- {TOKEN_REUSED}, {NOT_FOUND} if there is no such pet, {CONFLICT} if it is not available, or {FULL}
-- if no id is left.
local results, orders, pets, live, ordered = {DONE}, {}, {}, {}, {}
for n = 1, #ARGV - 3, 7 do
  local head, tail, pet_id, token, fingerprint, now, expiry = unpack(ARGV, n, n + 6)
  local result = check_token(token, fingerprint, now)
  local pet = not result and get('pets', pet_id)
  if not result and not pet then
    result = {NOT_FOUND}
  elseif not result and (ordered[pet_id] or status_of(pet) ~= 'available') then
    result = {CONFLICT}
  end
  local id = not result and next_id('orders')
  if id then
    ordered[pet_id] = true
    append(orders, id, head .. id .. tail)
    append(pets, pet_id, pet)
    append(live, pet_id, id)
    record(token, fingerprint, now, expiry, id)
    result = {DONE, id, expiry}
  end
  results[#results + 1] = result or {FULL}
end
if #orders > 0 then
  save_count('orders')
  add('orders', orders)
  set_status('pets', pets, 'pending')
  redis.call('HSET', key.live, unpack(live))
  save_records()
end
return results
