-- Creates the store in this partition unless it exists.
-- ARGV: schema, partitions, identity of the store if it has none yet
-- Returns {DONE, schema, partitions, identity} as stored.
if redis.call('HSETNX', key.meta, 'schema', ARGV[1]) == 1 then
  redis.call('HSET', key.meta, 'partitions', ARGV[2])
end
redis.call('HSETNX', key.meta, 'store', ARGV[3])
draw_id_range(unpack(redis.call('HMGET', key.meta, 'replid', 'id_range')))
return {DONE, unpack(redis.call('HMGET', key.meta, 'schema', 'partitions', 'store'))}
