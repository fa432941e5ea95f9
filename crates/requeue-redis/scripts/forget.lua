-- Forgets the failures of keys that are not dead.
--
-- ARGV: the time, the keys. Reply: the number of keys.
local texts = call('HMGET', records, unpack(ARGV, 2))
for i = 2, #ARGV do
    local record = decode(texts[i - 1])
    if record.failures > 0 and record.phase ~= 'X' then
        call('HDEL', errors, ARGV[i])
        record.failures = 0
        save(ARGV[i], record)
    end
end
return #ARGV - 1
