-- Stores a pet of another store under its id.
-- ARGV: id, pet
-- Returns {DONE}, also if the same pet is stored already, or {CONFLICT} if a different one is.
local id, pet = unpack(ARGV)
local stored = get('pets', id)
if stored and stored ~= pet then return {CONFLICT} end
if stored then
  count_revision()
  return {DONE}
end
add('pets', status_of(pet), {id, pet})
return {DONE}
