-- Stores an order of another store under its id.
-- ARGV: id, order, pet id, status that the pet must have unless the order is cancelled
-- Returns {DONE}, also if the same order is stored already, {NOT_FOUND} if there is no such pet, or
-- {CONFLICT} if a different order has the id, the pet has another status or is in another order that
-- is placed or completed.
local id, order, pet_id, pet_status = unpack(ARGV)
local stored = get('orders', id)
if stored and stored ~= order then return {CONFLICT} end
if stored then
  count_revision()
  return {DONE}
end
local pet = get('pets', pet_id)
if not pet then return {NOT_FOUND} end
if status_of(order) ~= 'cancelled' then
  if status_of(pet) ~= pet_status then return {CONFLICT} end
  if redis.call('HSETNX', key.live, pet_id, id) == 0 then return {CONFLICT} end
end
add('orders', status_of(order), {id, order})
return {DONE}
