-- All partitions get the same identity; `retries` become `tokens`; one counter replaces three.
-- ARGV: 1, 2, identity of the store
-- Returns nil.
redis.call('HSET', key.meta, 'store', ARGV[3])
redis.call('HDEL', key.meta, 'connections', 'replays', 'repeats')
if redis.call('EXISTS', key.retries) == 1 then redis.call('RENAME', key.retries, key.tokens) end
