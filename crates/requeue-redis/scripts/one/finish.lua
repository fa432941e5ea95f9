-- Finishes one lease that succeeded or is done.
--
-- The key must not be dirty, delayed or failing.
--
-- KEYS: records, leases. ARGV: the key, and the first 22 characters of its record.
-- Reply: `d` as in finish.lua. In any other case nil, and nothing was changed.
local call, sub, records, key = redis.call, string.sub, KEYS[1], ARGV[1]
local text = call('HGET', records, key)
if not text or sub(text, 1, 22) ~= ARGV[2] or sub(text, 23, 24) ~= '0:' then
    return false
end
call('ZREM', KEYS[2], key)
call('HDEL', records, key)
return 'd'
