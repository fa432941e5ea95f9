-- Adds keys for now. ARGV: the time, how long a dead one waits, the keys, all different.
-- Answers with one letter for each: (r)eady, (d)irty, d(u)plicate, or (w)aits.
local count = #ARGV - 2
local values = call('HMGET', states, unpack(ARGV, 3))
local since = 'Q' .. stamp
local fields, fresh, answers, f, dirty = {}, {}, {}, 0, 0
local add_level, close_lines
for i = 1, count do
    local value = values[i]
    if not value then
        local key = ARGV[i + 2]
        fresh[#fresh + 1] = key
        fields[f + 1], fields[f + 2] = key, since
        f = f + 2
        answers[i] = 'r'
    else
        local kind = byte(value)
        if kind == 80 then -- P
            dirty = dirty + 1
            fields[f + 1], fields[f + 2] = ARGV[i + 2], 'D' .. sub(value, 2)
            f = f + 2
            answers[i] = 'd'
        elseif kind == 65 then -- A
            fresh[#fresh + 1] = ARGV[i + 2]
            fields[f + 1], fields[f + 2] = ARGV[i + 2], since .. sub(value, 2)
            suspect()
            f = f + 2
            answers[i] = 'r'
        elseif kind == 88 then -- X
            local key = ARGV[i + 2]
            call('HDEL', dead, key)
            call('ZREM', buried, key)
            if ARGV[2] == '0' then
                fresh[#fresh + 1] = key
                fields[f + 1], fields[f + 2] = key, since
                f = f + 2
                answers[i] = 'r'
            else
                call('HDEL', states, key)
                call('ZADD', delays, format('%.0f', now + ARGV[2]), key)
                unsettle()
                call('ZADD', wake, 0, '1')
                answers[i] = 'w'
            end
        elseif kind == 64 then -- @
            if not add_level then
