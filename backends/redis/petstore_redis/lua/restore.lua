-- Stores a pet, an order or a record of another store, or raises the counters before that. One script
-- for all, so that a server that has forgotten it does not store an order before its pet: the caller
-- sends again what was not known.
-- ARGV: 'counters', lowest count of pets, lowest count of orders. They are raised in every partition,
--   so that ids that are assigned later are higher.
-- Or: 'pet', id, pet
-- Or: 'order', id, order, pet id, status that the pet must have unless the order is cancelled
-- Or: 'token', token, fingerprint, expiry, id
-- Returns {DONE}, also if the same item is stored already, {NOT_FOUND} if there is no pet for an
-- order, or {CONFLICT} if a different item has the id or the token, or the pet of an order has another
-- status or is in another order that is placed or completed.
local kind, id, item = unpack(ARGV, 1, 3)
if kind == 'counters' then
  for position, counter in ipairs({'pets', 'orders'}) do
    if tonumber(ARGV[position + 1]) > counts[counter] then
      redis.call('HSET', key.meta, counter, ARGV[position + 1])
    end
  end
  return {DONE}
end
if kind == 'token' then
  local expiry = ARGV[4]
  local record = item .. expiry .. ' ' .. ARGV[5]
  local stored = redis.call('HGET', key.tokens, id)
  if stored and stored ~= record then return {CONFLICT} end
  -- Also if it is the same: WAIT needs a write to wait for.
  redis.call('HSET', key.tokens, id, record)
  redis.call('ZADD', key.expiries, expiry, id)
  return {DONE}
end
local set = kind .. 's'
local stored = get(set, id)
if stored and stored ~= item then return {CONFLICT} end
if stored then
  count_revision()
  return {DONE}
end
if kind == 'order' then
  local pet_id, pet_status = unpack(ARGV, 4, 5)
  local pet = get('pets', pet_id)
  if not pet then return {NOT_FOUND} end
  if status_of(item) ~= 'cancelled' then
    if status_of(pet) ~= pet_status then return {CONFLICT} end
    if redis.call('HSETNX', key.live, pet_id, id) == 0 then return {CONFLICT} end
  end
end
add(set, status_of(item), {id, item})
return {DONE}
