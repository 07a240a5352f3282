-- Creates the store in this partition unless it exists.
-- ARGV: schema, partitions, id of the store if it has none yet, 1 if it must exist
-- Returns {DONE, schema, partitions, id} as stored, or {NOT_FOUND}.
if ARGV[4] == '1' and redis.call('EXISTS', key.meta) == 0 then return {NOT_FOUND} end
if redis.call('HSETNX', key.meta, 'schema', ARGV[1]) == 1 then
  redis.call('HSET', key.meta, 'partitions', ARGV[2])
end
redis.call('HSETNX', key.meta, 'store', ARGV[3])
draw_lane(unpack(redis.call('HMGET', key.meta, 'replid', 'lane')))
return {DONE, unpack(redis.call('HMGET', key.meta, 'schema', 'partitions', 'store'))}
