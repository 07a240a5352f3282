-- Raises the counters of this partition. Runs before items are restored, so that ids that are
-- assigned later are higher, in every partition.
-- ARGV: lowest count of pets, lowest count of orders
-- Returns {DONE}.
for position, counter in ipairs({'pets', 'orders'}) do
  if tonumber(ARGV[position]) > counts[counter] then
    redis.call('HSET', key.meta, counter, ARGV[position])
  end
end
return {DONE}
