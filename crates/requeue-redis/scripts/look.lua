-- Describes keys, after moving the keys whose delay has ended.
--
-- ARGV: the time, the keys.
-- Reply: the time, and for each key its record and the end of its delay; both may be empty.
move_delays()
flush_ready()
local texts = call('HMGET', records, unpack(ARGV, 2))
local ends = call('ZMSCORE', delays, unpack(ARGV, 2))
local reply = { stamp }
for i = 1, #texts do
    reply[2 * i], reply[2 * i + 1] = texts[i] or '', ends[i] or ''
end
return reply
