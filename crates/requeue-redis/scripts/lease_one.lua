-- Hands out one key in a plain lease, see lease.lua. KEYS: states, ready, leases, and, for
-- more than the most usual, meta and failures. ARGV: a colon and the owner; how much longer
-- than USUAL of words.lua the lease lasts, if not just as long, and no less than UNWATCHED
-- of calendar.lua; and the time, in 16 digits, if it is not the engine's.
-- Answers with the token, which is the time, and since when the key was ready, each in 16
-- digits, and the key; or as lease.lua, if this is not the first delivery or the key has
-- failed; or with nothing, if the lease is not plain or no key is ready; or with 1, if it
-- takes all KEYS. It does not look at what is left.
local call, sub, states, holder = redis.call, string.sub, KEYS[1], ARGV[1]
local stamp = ARGV[3]
if not stamp then
    local time = call('TIME')
    local fraction = time[2]
    stamp = time[1] .. (#fraction == 6 and fraction or sub('00000' .. fraction, -6))
end
local last = call('HGET', states, '')
if not last or last >= stamp or stamp >= sub(last, 17, 32) then
    return false
end
local before, meta, odd = sub(last, 33), KEYS[4], false
if before ~= holder and before ~= ':' then
    if not meta then
        return 1
    end
    odd = sub(before, 1, 1) == '!'
end
local key = call('LPOP', KEYS[2])
if not key then
    return false
end
local score = stamp
if ARGV[2] then
    score = string.format('%.0f', stamp + ARGV[2])
end
call('ZADD', KEYS[3], score, key)
local value = call('HGET', states, key)
local since = sub(value, 2, 17)
if before == holder then
    call('HSET', states, key, 'P' .. stamp .. '1' .. holder, '', stamp .. sub(last, 17))
    return stamp .. since .. key
end
local failed = odd and call('HGET', KEYS[5], key)
local deliveries, owner = (tonumber(sub(value, 18)) or 0) + 1, sub(holder, 2)
call('HSET', states,
    key, 'P' .. stamp .. deliveries .. (failed and '!' or ':') .. owner,
    '', stamp .. sub(last, 17, 32) .. (odd and '!' or ':') .. owner)
if #before > 1 and sub(before, 2) ~= owner then
    call('HSET', meta, 'o:' .. sub(before, 2), sub(last, 1, 16))
end
if deliveries == 1 and not failed then
    return stamp .. since .. key
end
return { 0, 0, stamp, 1, 1, deliveries, failed and string.match(failed, '^%d+') or 0, 0,
    1, 1, math.max(0, stamp - since), key }
