-- Tells of dead keys, the longest dead first. ARGV: the time, from which on, up to which.
-- Answers with the time, and for each the key, since when it is dead, and its record.
local page = call('ZRANGE', buried, ARGV[2], ARGV[3], 'WITHSCORES')
local answers = { stamp }
for i = 1, #page, 2 do
    answers[#answers + 1] = page[i]
    answers[#answers + 1] = page[i + 1]
    answers[#answers + 1] = call('HGET', dead, page[i]) or ''
end
return answers
