-- Comes before each upgrade_N.lua, which turns a partition with schema N into one with schema N + 1
-- in the same step. Another process may have done so already: then nothing happens.
-- ARGV: N, N + 1
-- Returns nil.
if redis.call('HGET', key.meta, 'schema') ~= ARGV[1] then return end
redis.call('HSET', key.meta, 'schema', ARGV[2])
