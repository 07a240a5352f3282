-- Completes or cancels a placed order and gives its pet the matching status.
-- ARGV: id, new status, new status of the pet
-- Returns {DONE, order}, {NOT_FOUND}, or {CONFLICT} if the order is no longer placed. For an order
-- that already has the status only a counter is written, so that WAIT has a write to wait for: the
-- one that set the status may not have reached the replicas.
local id, status, pet_status = unpack(ARGV)
local order = get('orders', id)
if not order then return {NOT_FOUND} end
local current = status_of(order)
if current == status then
  redis.call('HINCRBY', key.meta, 'repeats', 1)
  return {DONE, order}
end
if current ~= 'placed' then return {CONFLICT} end
local pet_id = string.match(order, '"petId":(%d+),')
set_status('pets', pet_id, get('pets', pet_id), pet_status)
if status == 'cancelled' then redis.call('HDEL', key.live, pet_id) end
return {DONE, set_status('orders', id, order, status)}
