-- Ends one lease of a key that is not dirty. KEYS: states, leases, and failures if they are
-- to be forgotten. ARGV: the key, and how its state begins, a P and the 16 digits of its
-- token.
-- Answers with `d` as finish.lua does, or with nothing if it takes all of that.
local call, states, key = redis.call, KEYS[1], ARGV[1]
local value = call('HGET', states, key)
if not value or string.sub(value, 1, 17) ~= ARGV[2] then
    return false
end
call('ZREM', KEYS[2], key)
call('HDEL', states, key)
if KEYS[3] then
    call('HDEL', KEYS[3], key)
end
return 'd'
