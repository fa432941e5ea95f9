-- Revives or drops dead keys.
--
-- ARGV: the time, what to do, (r)evive or (d)rop, and the keys; without keys, the 500 that
-- have been dead for the longest.
-- Reply: how many of the keys were dead.
local keys, count = { unpack(ARGV, 3) }, 0
if #keys == 0 then
    keys = call('ZRANGE', dead, 0, 499)
end
for _, key in ipairs(keys) do
    if call('ZREM', dead, key) == 1 then
        count = count + 1
        call('HDEL', errors, key)
        local record = decode(false)
        if ARGV[2] == 'r' then
            record.priority = 0
            make_ready(key, record)
        end
        save(key, record)
    end
end
flush_ready()
return count
