-- Finds the oldest ready key.

-- Returns the first entry of `ready` that counts. Removes up to `max_stale` stale entries.
local function first_entry(max_stale)
    for _ = 0, max_stale do
        local entry = call('LINDEX', ready, 0)
        if not entry or count_stale() == 0
            or is_live(entry, call('HGET', records, sub(entry, 17))) then
            return entry
        end
        call('LPOP', ready)
        stale_count = stale_count - 1
    end
end

-- Returns the oldest ready key, the time at which it became ready, and its entry if it is in
-- `ready`. Considers only the first key of each priority.
local function oldest_ready(max_stale)
    local entry = first_entry(max_stale)
    local oldest, since = entry and sub(entry, 17), entry and sub(entry, 1, 16)
    local from, place = '-inf', 0
    while true do
        local first = call('ZRANGEBYSCORE', ranked, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if not first[1] then
            return oldest, since, entry
        end
        local line = math.floor(first[2] / PRIORITY_STEP)
        local own_since = sub(call('HGET', records, first[1]), 3, 18)
        local own_place = first[2] - line * PRIORITY_STEP
        if not oldest or own_since < since or (own_since == since and own_place < place) then
            oldest, since, place, entry = first[1], own_since, own_place, nil
        end
        from = format('%d', (line + 1) * PRIORITY_STEP)
    end
end
