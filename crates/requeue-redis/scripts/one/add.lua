-- Adds one key now with priority 0.
--
-- The key must be absent, ready or dirty with priority 0, or processing and not pending.
--
-- KEYS: records, ready, meta, wake. ARGV: the key; in tests, the time in 16 digits.
-- Reply: a letter as in add.lua. In any other case nil, and nothing was changed.
local call, sub, records, key = redis.call, string.sub, KEYS[1], ARGV[1]
local text = call('HGET', records, key)
if text then
    local phase, priority = sub(text, 1, 1), sub(text, 19, 22)
    if phase == 'P' and priority == '----' then
        call('HSET', records, key, 'D' .. sub(text, 2, 18) .. '+000' .. sub(text, 23))
        call('HINCRBY', KEYS[3], 'dirty', 1)
        return 'd'
    end
    return (phase == 'R' or phase == 'D') and priority == '+000' and 'u'
end
local stamp = ARGV[2]
if not stamp then
    local time = call('TIME')
    stamp = time[1] .. sub('000000', #time[2] + 1) .. time[2]
end
call('HSET', records, key, 'R.' .. stamp .. '+0000:0:')
if call('RPUSH', KEYS[2], stamp .. key) == 1 then
    call('ZADD', KEYS[4], '0', '1')
end
return 'r'
