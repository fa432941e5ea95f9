-- Lists a page of the owners, and forgets those that were not seen for a day.
--
-- ARGV: the time, the cursor of the page, and whether to forget: (y)es or (n)o.
-- Reply: the time, the cursor of the next page ("0": this was the last), and for each owner
-- its name and when it was last seen.
local DAY = 86400000000
local page = call('HSCAN', meta, ARGV[2], 'COUNT', 500)
local fields, reply = page[2], { stamp, page[1] }
for i = 1, #fields, 2 do
    if sub(fields[i], 1, 2) == 'o:' then
        if ARGV[3] == 'y' and now - fields[i + 1] > DAY then
            call('HDEL', meta, fields[i])
        else
            reply[#reply + 1] = sub(fields[i], 3)
            reply[#reply + 1] = fields[i + 1]
        end
    end
end
return reply
