-- Lists a page of the leases.
--
-- ARGV: the time, the cursor of the page.
-- Reply: the cursor of the next page ("0": this was the last), and each key and its record.
local LONGEST_KEY = 1024 -- the ballast is longer
local page = call('ZSCAN', leases, ARGV[2], 'COUNT', 500)
local entries, reply = page[2], { page[1] }
for i = 1, #entries, 2 do
    if #entries[i] <= LONGEST_KEY then
        reply[#reply + 1] = entries[i]
        reply[#reply + 1] = call('HGET', records, entries[i])
    end
end
return reply
