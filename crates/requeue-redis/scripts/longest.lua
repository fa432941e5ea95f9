-- The key that has stood in its line for the longest, and since when. `first` is the first
-- of those of priority 0.
local function longest_ready(first)
    local key, place
    local page = call('ZRANGE', ranked, 0, 0, 'WITHSCORES')
    while page[1] do
        local number = math.floor(page[2] / APART)
        local own = page[2] - number * APART
        if not place or own < place then
            key, place = page[1], own
        end
        local next_line = format('%.0f', (number + 1) * APART)
        page = call('ZRANGEBYSCORE', ranked, next_line, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    end
    local since = key and sub(call('HGET', states, key), 11, 26)
    local usual = first and sub(call('HGET', states, first), 2, 17)
    if usual and (not key or usual <= since) then
        return first, usual
    end
    return key, since
end
