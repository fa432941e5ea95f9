-- Finds the oldest ready key.

-- Returns the first entry that counts. Removes up to `max_stale` stale entries.
local function first_entry(max_stale)
    for _ = 0, max_stale do
        local entry = is_compacting and call('LINDEX', compacted, 0)
            or call('LINDEX', ready, 0)
        if not entry or stale_count == 0
            or is_live(entry, call('HGET', records, sub(entry, 17))) then
            return entry
        end
        pop_entries(1)
        stale_count = stale_count - 1
    end
end

-- Returns the oldest of `entry` and the first keys of each other priority, the time at which
-- it became ready, and `entry` if it is the oldest.
local function oldest_ready(entry)
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
