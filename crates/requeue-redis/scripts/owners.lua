-- Tells who was heard of, and forgets who was not since a day. ARGV: the time, and whether
-- to forget: (y)es or (n)o.
-- Answers with the time, and the name of each and when it was heard of.
local DAY = 86400000000
local last = call('HGET', states, '')
local holder = last and sub(last, 34) or ''
if holder ~= '' and (call('HGET', meta, 'o:' .. holder) or '') < sub(last, 1, 16) then
    call('HSET', meta, 'o:' .. holder, sub(last, 1, 16))
end
local answers = { stamp }
local fields = call('HGETALL', meta)
for i = 1, #fields, 2 do
    if sub(fields[i], 1, 2) == 'o:' then
        if ARGV[2] == 'y' and now - fields[i + 1] > DAY then
            call('HDEL', meta, fields[i])
        else
            answers[#answers + 1] = sub(fields[i], 3)
            answers[#answers + 1] = fields[i + 1]
        end
    end
end
return answers
