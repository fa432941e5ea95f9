-- Ends one lease, done or succeeded, of a key that is not dirty, was delivered once and has
-- no failures. KEYS: states, leases. ARGV: the key, and how its state begins: a P, the 16
-- digits of its token, `1:`.
-- Answers with `d` as finish.lua does, or with nothing if it takes all of that.
local call, states, key = redis.call, KEYS[1], ARGV[1]
local value = call('HGET', states, key)
if not value or string.sub(value, 1, 19) ~= ARGV[2] then
    return false
end
call('ZREM', KEYS[2], key)
call('HDEL', states, key)
return 'd'
