-- Completes or cancels a placed order and gives its pet the matching status.
-- ARGV: id, new status, new status of the pet
-- Returns {DONE, order}, also if it has the status already, {NOT_FOUND}, or {CONFLICT} if the order
-- is no longer placed.
local id, status, pet_status = unpack(ARGV)
local order = get('orders', id)
if not order then return {NOT_FOUND} end
local current = status_of(order)
if current ~= status and current ~= 'placed' then return {CONFLICT} end
count_revision()
if current == status then return {DONE, order} end
local pet_id = string.match(order, '"petId":(%d+),')
set_status('pets', {pet_id, get('pets', pet_id)}, pet_status)
if status == 'cancelled' then redis.call('HDEL', key.live, pet_id) end
return {DONE, set_status('orders', {id, order}, status)[2]}
