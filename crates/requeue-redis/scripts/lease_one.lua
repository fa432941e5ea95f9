-- Hands out one key in a plain lease, see lease.lua. KEYS: states, ready, leases, failures,
-- meta. ARGV: the owner, how long the lease lasts, and the time, in 16 digits, if it is not
-- the engine's.
-- Answers with the token, in 16 digits, and the key; or as lease.lua, if this is not the
-- first delivery or the key has failed; or with nothing, if the lease is not plain or no
-- key is ready. It does not look at what is left.
local call, sub, meta = redis.call, string.sub, KEYS[5]
local stamp = ARGV[3]
if not stamp then
    local time = call('TIME')
    local fraction = time[2]
    stamp = time[1] .. (#fraction == 6 and fraction or sub('00000' .. fraction, -6))
end
local plain = call('HGET', meta, 'plain')
if not plain or stamp <= sub(plain, 1, 16) or stamp >= sub(plain, 17, 32) then
    return false
end
local key = call('LPOP', KEYS[2])
if not key then
    return false
end
local owner, states = ARGV[1], KEYS[1]
local value = call('HGET', states, key)
local failed = #plain > 32 and call('HGET', KEYS[4], key)
local deliveries = #value == 17 and '1' or sub(value, 18) + 1
local deadline, ends = stamp + ARGV[2], sub(plain, 17)
call('HSET', states, key, 'P' .. stamp .. deliveries .. ':' .. owner)
call('ZADD', KEYS[3], deadline, key)
if deadline < tonumber(sub(ends, 1, 16)) then
    ends = string.format('%016.0f', deadline) .. sub(ends, 17)
end
call('HSET', meta, 'token', stamp, 'plain', stamp .. ends, 'o:' .. owner, stamp)
if deliveries == '1' and not failed then
    return stamp .. key
end
return { 0, 0, stamp, 1, 1, deliveries,
    failed and string.match(failed, '^%d+') or 0, key }
