-- Forgets failures. ARGV: the time, the keys. Those of the dead are kept with them.
call('HDEL', failures, unpack(ARGV, 2))
for i = 2, #ARGV do
    local key = ARGV[i]
    local value = call('HGET', states, key)
    if value and sub(value, 1, 1) == 'A' and not call('ZSCORE', delays, key) then
        call('HDEL', states, key)
    end
end
return 1
