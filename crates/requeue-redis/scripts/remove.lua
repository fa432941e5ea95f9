-- Takes out what is planned. ARGV: the time, the keys, all different.
-- Answers with one letter for each: whether there was anything, (y)es or (n)o.
local letters, dirty = {}, 0

-- Deliveries are remembered for a key that is nowhere, while it has failures.
local function forget_state(key, deliveries)
    if deliveries ~= '' and call('HEXISTS', failures, key) == 1 then
        call('HSET', states, key, 'A' .. deliveries)
    else
        call('HDEL', states, key)
    end
end

for i = 2, #ARGV do
    local key = ARGV[i]
    local value, level, held = split(call('HGET', states, key))
    local kind = value and sub(value, 1, 1)
    local planned = call('ZREM', delays, key) == 1
    if kind == 'Q' then
        leave(key, level)
        forget_state(key, sub(value, 18))
        planned = true
    elseif kind == 'A' then
        forget_state(key, sub(value, 2))
    elseif kind == 'D' then
        note(key, join('P' .. sub(value, 2), nil, held))
        dirty = dirty - 1
        planned = true
    elseif level then
        note(key, join(value, nil, held))
    end
    letters[#letters + 1] = planned and 'y' or 'n'
end
count_dirty(dirty)
close_line()
return table.concat(letters)
