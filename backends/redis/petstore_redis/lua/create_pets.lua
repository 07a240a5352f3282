-- Stores new pets.
-- ARGV: for each pet JSON before the id, JSON after it, token; if that is not empty, fingerprint,
-- now, expiry
-- Returns {DONE, result, ...}. A result is an id, {REPLAYED, id, expiry}, {TOKEN_REUSED}, or {FULL}
-- if no id is left.
local results, by_head = {DONE}, {}
read_records(3)
local n = 1
while n <= #ARGV - 3 do
  local head, tail, token = unpack(ARGV, n, n + 2)
  n = n + 3
  local result, fingerprint, now, expiry
  if token ~= '' then
    fingerprint, now, expiry = unpack(ARGV, n, n + 2)
    n = n + 3
    result = check_token(token, fingerprint, now)
  end
  local id = not result and next_id('pets')
  if id then
    local pets = by_head[head] or {}
    by_head[head] = pets
    pets[#pets + 1] = id
    pets[#pets + 1] = head .. id .. tail
    if token ~= '' then record(token, fingerprint, now, expiry, id) end
  end
  results[#results + 1] = id or result or {FULL}
end
if next(by_head) then
  save_count('pets')
  for head, pets in pairs(by_head) do add('pets', status_of(head), pets) end
  save_records()
end
return results
