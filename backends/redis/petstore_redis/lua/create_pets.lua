-- Stores new pets.
-- ARGV: for each pet JSON before the id, JSON after it, token, fingerprint, now, expiry
-- Returns {DONE, result, ...}. A result is {DONE, id}, {REPLAYED, id, expiry}, {TOKEN_REUSED}, or
-- {FULL} if no id is left.
local results, pets = {DONE}, {}
for n = 1, #ARGV - 3, 6 do
  local head, tail, token, fingerprint, now, expiry = unpack(ARGV, n, n + 5)
  local result = check_token(token, fingerprint, now)
  local id = not result and next_id('pets')
  if id then
    append(pets, id, head .. id .. tail)
    record(token, fingerprint, now, expiry, id)
    result = {DONE, id}
  end
  results[#results + 1] = result or {FULL}
end
if #pets > 0 then
  save_count('pets')
  add('pets', pets)
  save_records()
end
return results
