-- Lists a page of the failing keys: those with failures that are not dead.
--
-- ARGV: the time, the cursor of the page.
-- Reply: the time, the cursor of the next page ("0": this was the last), and for each key the
-- key, its record, its last error, and the end of its delay or nothing.
local page = call('HSCAN', errors, ARGV[2], 'COUNT', 500)
local entries, reply = page[2], { stamp, page[1] }
for i = 1, #entries, 2 do
    local key, count = entries[i], #reply
    local text = call('HGET', records, key)
    if sub(text, 1, 1) ~= 'X' then
        reply[count + 1], reply[count + 2], reply[count + 3] = key, text, entries[i + 1]
        reply[count + 4] = call('ZSCORE', delays, key) or ''
    end
end
return reply
