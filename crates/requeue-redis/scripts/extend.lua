-- Extends leases, and records that the owner is alive.
--
-- ARGV: the time, the owner, how long the leases last from now, the number of leases, their
-- keys (all different), and the 16 digits of each token.
-- Reply: one letter for each lease, whether it was still held: (y)es or (n)o.
call('HSET', meta, 'o:' .. ARGV[2], stamp)
local count = tonumber(ARGV[4])
if count == 0 then
    return ''
end
local texts = call('HMGET', records, unpack(ARGV, 5, count + 4))
local deadline, scores, letters = format('%d', now + ARGV[3]), {}, {}
for i = 1, count do
    local text = texts[i]
    local phase = text and sub(text, 1, 1)
    letters[i] = 'n'
    if (phase == 'P' or phase == 'D') and sub(text, 3, 18) == ARGV[i + 4 + count] then
        scores[#scores + 1] = deadline
        scores[#scores + 1] = ARGV[i + 4]
        letters[i] = 'y'
    end
end
if #scores > 0 then
    call('ZADD', leases, unpack(scores))
end
return table.concat(letters)
