-- Adds one key for now. KEYS: states, ready, wake, meta. ARGV: the key, and the time, in
-- 16 digits, if it is not the engine's.
-- Answers with a letter as add.lua does, or with nothing if it takes all of that.
local call, states, key = redis.call, KEYS[1], ARGV[1]
local value = call('HGET', states, key)
if value then
    local kind = string.byte(value)
    if kind == 81 or kind == 68 then -- Q or D
        return 'u'
    elseif kind == 80 then -- P
        call('HSET', states, key, 'D' .. string.sub(value, 2))
        call('HINCRBY', KEYS[4], 'dirty', 1)
        return 'd'
    end
    return false
end
local stamp = ARGV[2]
if not stamp then
    local time = call('TIME')
    local fraction = time[2]
    stamp = time[1] .. (#fraction == 6 and fraction or string.sub('00000' .. fraction, -6))
end
call('HSET', states, key, 'Q' .. stamp)
if call('RPUSH', KEYS[2], key) == 1 then
    call('ZADD', KEYS[3], '0', '1')
end
return 'r'
