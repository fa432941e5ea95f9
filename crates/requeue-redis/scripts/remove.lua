-- Takes out what is planned. ARGV: the time, the keys, all different.
-- Answers with one letter for each: whether there was anything, (y)es or (n)o.
local letters, dirty, entries = {}, 0, stale_count()
local known = entries

-- Lines up to this length are searched: that is quicker than to pass over an entry later.
local SHORT = 64

local function leave_line(key)
    if call('LLEN', ready) <= SHORT then
        call('LREM', ready, -1, key)
    else
        call('HINCRBY', stale, key, 1)
        entries = entries + 1
    end
end

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
    local value = call('HGET', states, key)
    local kind = value and sub(value, 1, 1)
    local planned = call('ZREM', delays, key) == 1
    if kind == 'Q' then
        leave_line(key)
        forget_state(key, sub(value, 18))
        planned = true
    elseif kind == 'A' then
        forget_state(key, sub(value, 2))
    elseif kind == 'D' then
        call('HSET', states, key, 'P' .. sub(value, 2))
        dirty = dirty - 1
        planned = true
    end
    letters[#letters + 1] = planned and 'y' or 'n'
end
count_dirty(dirty)
if entries ~= known or entries > 0 then
    tidy(set_stale(entries))
end
return table.concat(letters)
