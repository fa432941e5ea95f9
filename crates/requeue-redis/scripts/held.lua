-- Tells of some leases. ARGV: the time, where to go on.
-- Answers with where to go on next ("0": nowhere), and the key and the state of each.
local BALLAST = 1025 -- see ballast.lua
local page = call('ZSCAN', leases, ARGV[2], 'COUNT', 500)
local answers = { page[1] }
local entries = page[2]
for i = 1, #entries, 2 do
    if #entries[i] ~= BALLAST then
        answers[#answers + 1] = entries[i]
        answers[#answers + 1] = call('HGET', states, entries[i]) or ''
    end
end
return answers
