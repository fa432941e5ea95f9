-- Moves keys whose delay has ended and keys whose lease has expired, at most 500 of each.

-- Removes the due keys from a calendar. Returns them and their records.
local function take_due(calendar)
    local keys = call('ZRANGEBYSCORE', calendar, '-inf', stamp, 'LIMIT', 0, 500)
    if #keys == 0 then
        return {}, {}
    end
    call('ZREM', calendar, unpack(keys))
    return keys, call('HMGET', records, unpack(keys))
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

-- Ends expired leases. Returns how many keys are ready again and how many are dead.
local function move_leases(max_deliveries)
    local keys, texts = take_due(leases)
    local died = 0
    for i, key in ipairs(keys) do
        local record = decode(texts[i])
        if record.phase == 'D' then
            dirty_change = dirty_change - 1
        end
        if record.deliveries < max_deliveries then
            local priority = record.lease_priority
            record.priority = math.max(record.priority or priority, priority)
            make_ready(key, record)
        else
            local times = record.deliveries == 1 and ' time' or ' times'
            bury(key, record, 'its lease expired ' .. record.deliveries .. times .. ' in a row')
            died = died + 1
        end
        save(key, record)
    end
    return #keys - died, died
end
