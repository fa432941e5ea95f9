-- Takes keys from the dead, and makes them ready or drops them. ARGV: the time, what
-- becomes of them, (r)eady or (d)ropped, and the keys; none means the 500 that are dead
-- for the longest.
-- Answers with how many there were.
local keys = { unpack(ARGV, 3) }
if #keys == 0 then
    keys = call('ZRANGE', buried, 0, 499)
end
local fresh = {}
for _, key in ipairs(keys) do
    if call('ZREM', buried, key) == 1 then
        call('HDEL', dead, key)
        fresh[#fresh + 1] = key
        if ARGV[2] == 'r' then
            call('HSET', states, key, 'Q' .. stamp)
        else
            call('HDEL', states, key)
        end
    end
end
if ARGV[2] == 'r' then
    line_up(fresh)
end
return #fresh
