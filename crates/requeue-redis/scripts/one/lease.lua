-- Leases the first ready key.
--
-- The key must not be delayed, delivered before or failing. No key may be due, every ready
-- key must have priority 0, no entry may be stale, and it must not be the turn of the oldest
-- key. Does not look at the keys that are left.
--
-- KEYS: records, ready, ranked, leases, delays, meta. ARGV: the owner, how long the lease
-- lasts, and the greatest token that the caller knows, in 16 digits; in tests, the time in 16
-- digits.
-- Reply: the token, which is the time; the time at which the key became ready, in 16 digits;
-- and the key. In any other case nil, and nothing was changed.
local call, sub, records, owner = redis.call, string.sub, KEYS[1], ARGV[1]
local stamp = ARGV[4]
if not stamp then
    local time = call('TIME')
    stamp = time[1] .. sub('000000', #time[2] + 1) .. time[2]
end
local settings = call('HMGET', KEYS[6], 'token', 'paused', 'stale')
if (settings[1] or '') >= stamp or ARGV[3] >= stamp or settings[2] == '1' or (settings[3] or '0') ~= '0'
    or stamp % 256 == 0
    or call('EXISTS', KEYS[3]) == 1
    or call('ZCOUNT', KEYS[4], '-inf', stamp) > 0
    or call('ZCOUNT', KEYS[5], '-inf', stamp) > 0 then
    return false
end
local entry = call('LPOP', KEYS[2])
if not entry then
    return false
end
local key = sub(entry, 17)
if call('HGET', records, key) ~= 'R.' .. sub(entry, 1, 16) .. '+0000:0:' then
    call('LPUSH', KEYS[2], entry)
    return false
end
call('HSET', records, key, 'P.' .. stamp .. '----0:1:+000' .. owner)
call('ZADD', KEYS[4], string.format('%d', stamp + ARGV[2]), key)
call('HSET', KEYS[6], 'token', stamp, 'o:' .. owner, stamp)
return stamp .. entry
