-- Reads some of the records of tokens.
-- ARGV: server that has returned the cursor, cursor, count
-- Returns {DONE, server, next cursor, {token, record, ...}}. A cursor of another server means
-- nothing here, so the records are read from the beginning then.
local server, cursor, count = unpack(ARGV, 1, 3)
local this = replication_id()
if server ~= this then cursor = '0' end
return {DONE, this, unpack(redis.call('HSCAN', key.tokens, cursor, 'COUNT', count))}
