-- Revives or drops dead keys.
--
-- ARGV: the time, what to do, (r)evive or (d)rop, and the keys; without keys, the 500 that
-- have been dead for the longest.
-- Reply: one letter for each key, whether it was dead: (y)es or (n)o.
local keys, letters = { unpack(ARGV, 3) }, {}
if #keys == 0 then
    keys = call('ZRANGE', dead, 0, 499)
end
for i, key in ipairs(keys) do
    letters[i] = 'n'
    if call('ZREM', dead, key) == 1 then
        letters[i] = 'y'
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
return table.concat(letters)
