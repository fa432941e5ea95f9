-- Of the keys that are first in their lines, the one that has been ready for the longest,
-- and since when. `first` is the first of those of priority 0.
local function longest_ready(first)
    local key, since, place
    local page = call('ZRANGE', ranked, 0, 0, 'WITHSCORES')
    while page[1] do
        local number = math.floor(page[2] / APART)
        local own_place = page[2] - number * APART
        local own = sub(call('HGET', states, page[1]), 11, 26)
        if not key or own < since or (own == since and own_place < place) then
            key, since, place = page[1], own, own_place
        end
        local next_line = format('%.0f', (number + 1) * APART)
        page = call('ZRANGEBYSCORE', ranked, next_line, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    end
    local usual = first and sub(call('HGET', states, first), 2, 17)
    if usual and (not key or usual <= since) then
        return first, usual
    end
    return key, since
end
