-- The dead: `buried` has the time of each, `dead` the rest,
-- "failures:deliveries:length of the owner:owner and reason".

-- Notes a key as dead. Its state and its lease are the caller's.
local function bury(key, deliveries, owner, reason)
    local failed = call('HGET', failures, key)
    failed = failed and string.match(failed, '^%d+') or '0'
    call('HDEL', failures, key)
    call('ZREM', delays, key)
    call('ZADD', buried, stamp, key)
    call('HSET', dead, key,
        failed .. ':' .. deliveries .. ':' .. #owner .. ':' .. owner .. reason)
end
