-- Ends expired leases, at most 500.

-- The delay of a dirty key that is revived at its last delivery: `Backoff::default().max`.
local REVIVE_AFTER = 1000000000

-- Executes the add of a dirty key as an add of a dead key.
local function revive(key, record)
    clear_failures(key, record)
    record.phase, record.time, record.lease_priority, record.owner = 'A', NEVER, nil, ''
    record.deliveries = 0
    if record.delayed then
        call('ZREM', delays, key)
    end
    delay_by(key, record, REVIVE_AFTER)
end

-- Ends expired leases. Returns how many keys are pending again and how many are dead.
local function move_leases(max_deliveries)
    local keys, texts = take_due(leases)
    local died = 0
    for i, key in ipairs(keys) do
        local record = decode(texts[i])
        local is_dirty = record.phase == 'D'
        if is_dirty then
            dirty_change = dirty_change - 1
        end
        if record.deliveries < max_deliveries then
            local priority = record.lease_priority
            record.priority = math.max(record.priority or priority, priority)
            make_ready(key, record)
        elseif is_dirty then
            revive(key, record)
        else
            local times = record.deliveries == 1 and ' time' or ' times'
            bury(key, record, 'its lease expired ' .. record.deliveries .. times .. ' in a row')
            died = died + 1
        end
        save(key, record)
    end
    return #keys - died, died
end
