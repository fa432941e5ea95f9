-- Ends one lease, done or succeeded, of a key that is not dirty, was delivered once and has
-- no failures, and for which nothing is planned if it has a priority, see level.lua. KEYS:
-- states, leases. ARGV: the key, and how its state begins: a P, the 16 digits of its token,
-- `1:`.
-- Answers with `d` as finish.lua does, or with nothing if it takes all of that.
local call, sub, states, key = redis.call, string.sub, KEYS[1], ARGV[1]
local value = call('HGET', states, key)
if not value then
    return false
elseif sub(value, 1, 19) ~= ARGV[2]
    and (sub(value, 1, 5) ~= '@----' or sub(value, 10, 28) ~= ARGV[2]) then
    return false
end
call('ZREM', KEYS[2], key)
call('HDEL', states, key)
return 'd'
