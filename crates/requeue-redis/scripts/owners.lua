-- Lists the owners, and forgets those that were not seen for a day.
--
-- ARGV: the time, and whether to forget: (y)es or (n)o.
-- Reply: the time, and for each owner its name and when it was last seen.
local DAY = 86400000000
local fields, reply = call('HGETALL', meta), { stamp }
for i = 1, #fields, 2 do
    if sub(fields[i], 1, 2) == 'o:' then
        if ARGV[2] == 'y' and now - fields[i + 1] > DAY then
            call('HDEL', meta, fields[i])
        else
            reply[#reply + 1] = sub(fields[i], 3)
            reply[#reply + 1] = fields[i + 1]
        end
    end
end
return reply
