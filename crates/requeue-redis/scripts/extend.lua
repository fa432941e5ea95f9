-- Extends leases. ARGV: the time, the owner, how long they last, how many there are, the
-- keys, all different, and the 16 digits of each token.
-- Answers with one letter for each: (y)es or (n)o.
call('HSET', meta, 'o:' .. ARGV[2], stamp)
-- What ends later than that ends after leases are no longer plain anyway.
if tonumber(ARGV[3]) < UNWATCHED then
    unsettle()
end
local count = tonumber(ARGV[4])
if count == 0 then
    return ''
end
local values = call('HMGET', states, unpack(ARGV, 5, count + 4))
local score = format('%.0f', now + ARGV[3] - USUAL)
local scores, letters = {}, {}
for i = 1, count do
    local value = values[i]
    local kind = value and byte(value)
    if kind == 64 then -- @
        value = sub(value, 10)
        kind = byte(value)
    end
    if (kind == 80 or kind == 68) and sub(value, 2, 17) == ARGV[i + 4 + count] then
        scores[#scores + 1] = score
        scores[#scores + 1] = ARGV[i + 4]
        letters[i] = 'y'
    else
        letters[i] = 'n'
    end
end
if #scores > 0 then
    call('ZADD', leases, unpack(scores))
end
return table.concat(letters)
