-- Tells of some keys that have failed. ARGV: the time, where to go on.
-- Answers with the time, where to go on next ("0": nowhere), and for each key the key, its
-- failures and error, and when its delay is over.
local page = call('HSCAN', failures, ARGV[2], 'COUNT', 500)
local answers = { stamp, page[1] }
local entries = page[2]
for i = 1, #entries, 2 do
    answers[#answers + 1] = entries[i]
    answers[#answers + 1] = entries[i + 1]
    answers[#answers + 1] = call('ZSCORE', delays, entries[i]) or ''
end
return answers
