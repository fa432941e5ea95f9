-- Tells what is known of keys. ARGV: the time, the keys.
-- Answers with the time, and for each key its state ("X" and its record for a dead one),
-- its failures, and when its delay is over.
move_delays()
local values = call('HMGET', states, unpack(ARGV, 2))
local failed = call('HMGET', failures, unpack(ARGV, 2))
local times = call('ZMSCORE', delays, unpack(ARGV, 2))
local answers = { stamp }
for i = 1, #values do
    local value = values[i]
    if value == 'X' then
        value = 'X' .. (call('HGET', dead, ARGV[i + 1]) or '')
    end
    answers[#answers + 1] = value or ''
    answers[#answers + 1] = failed[i] and string.match(failed[i], '^%d+') or '0'
    answers[#answers + 1] = times[i] or ''
end
return answers
