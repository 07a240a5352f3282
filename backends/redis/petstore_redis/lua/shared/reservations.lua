-- Reservations, for stores with several partitions: tokens whose order belongs to another
-- partition. Each has 32 bytes of fingerprint, then expiry, pending (1 until the order is known,
-- then 0) and holders, which is how many requests in flight hold it.

-- Returns expiry, pending, holders and fingerprint of a reservation: 0, 1, 0, nil if there is none.
local function read_reservation(token)
  local found = redis.call('HGET', key.reservations, token)
  if not found then return 0, 1, 0, nil end
  local expiry, pending, holders = string.match(string.sub(found, 33), '^(%d+) (%d) (%d+)$')
  return tonumber(expiry), tonumber(pending), tonumber(holders), string.sub(found, 1, 32)
end

local function write_reservation(token, fingerprint, expiry, pending, holders)
  local state = string.format('%.0f %d %d', expiry, pending, holders)
  redis.call('HSET', key.reservations, token, fingerprint .. state)
  redis.call('ZADD', key.expiries, expiry, token)
end
