-- Moves keys whose delay has ended, at most 500.

-- Returns the due keys of a calendar and their records.
local function find_due(calendar)
    local keys = call('ZRANGEBYSCORE', calendar, '-inf', stamp, 'LIMIT', 0, 500)
    if #keys == 0 then
        return {}, {}
    end
    return keys, call('HMGET', records, unpack(keys))
end

-- As find_due, and removes the keys from the calendar.
local function take_due(calendar)
    local keys, texts = find_due(calendar)
    if #keys > 0 then
        call('ZREM', calendar, unpack(keys))
    end
    return keys, texts
end

-- Adds the keys whose delay has ended. Returns how many.
local function move_delays()
    local keys, texts = take_due(delays)
    for i, key in ipairs(keys) do
        local record = decode(texts[i])
        record.delayed = false
        if record.phase == 'A' then
            make_ready(key, record)
        elseif record.phase == 'P' then
            record.phase = 'D'
            dirty_change = dirty_change + 1
        end
        save(key, record)
    end
    return #keys
end
