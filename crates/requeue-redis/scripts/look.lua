-- Describes keys, after moving the keys whose delay has ended.
--
-- ARGV: the time, whether the user may write, (y)es or (n)o, and the keys. If not, nothing is
-- moved; the keys are described as if they were.
-- Reply: the time, and for each key its record and the end of its delay; both may be empty.
local PHASE_WHEN_DUE = { A = 'R', P = 'D' }

if ARGV[2] == 'y' then
    move_delays()
    flush_ready()
end
local texts = call('HMGET', records, unpack(ARGV, 3))
local ends = call('ZMSCORE', delays, unpack(ARGV, 3))
local reply = { stamp }
for i = 1, #texts do
    local text, delay_ends = texts[i] or '', ends[i] or ''
    if ARGV[2] == 'n' and delay_ends ~= '' and tonumber(delay_ends) <= now then
        local phase = sub(text, 1, 1)
        text, delay_ends = (PHASE_WHEN_DUE[phase] or phase) .. '.' .. sub(text, 3), ''
    end
    reply[2 * i], reply[2 * i + 1] = text, delay_ends
end
return reply
