-- Places orders of available pets and makes the pets pending.
-- ARGV: for each order JSON before the id, JSON after it, pet id, token; if that is not empty,
-- fingerprint, now, expiry
-- Returns {DONE, result, ...}. A result is an id, {REPLAYED, id, expiry}, {TOKEN_REUSED},
-- {NOT_FOUND} if there is no such pet, {CONFLICT} if it is not available, or {FULL} if no id is left.
local results, orders, pets, live, ordered = {DONE}, {}, {}, {}, {}
read_records(4)
local n = 1
while n <= #ARGV - 3 do
  local head, tail, pet_id, token = unpack(ARGV, n, n + 3)
  n = n + 4
  local result, fingerprint, now, expiry
  if token ~= '' then
    fingerprint, now, expiry = unpack(ARGV, n, n + 2)
    n = n + 3
    result = check_token(token, fingerprint, now)
  end
  local pet = not result and get('pets', pet_id)
  if not result and not pet then
    result = {NOT_FOUND}
  elseif not result and (ordered[pet_id] or status_of(pet) ~= 'available') then
    result = {CONFLICT}
  end
  local id = not result and next_id('orders')
  if id then
    ordered[pet_id] = true
    local last = #orders
    orders[last + 1], orders[last + 2] = id, head .. id .. tail
    pets[last + 1], pets[last + 2] = pet_id, pet
    live[last + 1], live[last + 2] = pet_id, id
    if token ~= '' then record(token, fingerprint, now, expiry, id) end
  end
  results[#results + 1] = id or result or {FULL}
end
if #orders > 0 then
  save_count('orders')
  add('orders', 'placed', orders)
  set_status('pets', pets, 'pending')
  redis.call('HSET', key.live, unpack(live))
  save_records()
end
return results
