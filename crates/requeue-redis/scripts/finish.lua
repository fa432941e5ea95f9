-- Ends leases. ARGV: the time, how many there are, the keys, all different, and for each
-- the 16 digits of its token and how it ends, a letter: (D)one; (S)ucceed; requeue (A)fter
-- so many microseconds; re(T)ry by the policy of backoff.lua, a colon and the error; (F)ailed,
-- retry after so many microseconds, a colon and the error; (B)ury for a reason; (R)elease.
-- Answers with one letter for each, (d)one, (r)equeued, (w)aits, (b)uried or (l)ost, and
-- then with the delays of those that wait.
local count = tonumber(ARGV[2])
local values = call('HMGET', states, unpack(ARGV, 3, count + 2))
local ended, absolved, letters = {}, {}, {}
for i = 1, count do
    local value, ending = values[i], ARGV[i + 2 + count]
    local kind, how = value and byte(value), byte(ending, 17)
    if (kind ~= 80 and kind ~= 68) or sub(value, 2, 17) ~= sub(ending, 1, 16) then
        if kind == 64 then -- @
            return rare(count, values)
        end
        letters[i] = 'l'
    elseif kind == 80 and (how == 83 or how == 68) then -- P; S or D
        ended[#ended + 1] = ARGV[i + 2]
        letters[i] = 'd'
        if how == 83 and sub(value, 18, 19) ~= '1:' then
            absolved[#absolved + 1] = ARGV[i + 2]
        end
    else
        return rare(count, values)
    end
end
if #ended > 0 then
    call('ZREM', leases, unpack(ended))
    call('HDEL', states, unpack(ended))
end
if #absolved > 0 then
    call('HDEL', failures, unpack(absolved))
end
return count == 1 and letters[1] or table.concat(letters)
