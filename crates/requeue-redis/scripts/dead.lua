-- Lists dead keys, the longest dead first.
--
-- ARGV: the time, the ranks of the first and of the last key.
-- Reply: the time, and for each key the key, its record and the reason.
local keys, reply = call('ZRANGE', dead, ARGV[2], ARGV[3]), { stamp }
for i, key in ipairs(keys) do
    reply[3 * i - 1], reply[3 * i] = key, call('HGET', records, key)
    reply[3 * i + 1] = call('HGET', errors, key)
end
return reply
