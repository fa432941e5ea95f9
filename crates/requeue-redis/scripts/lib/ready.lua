-- Makes keys ready. They are collected, and written by flush_ready().
--
-- Ready keys of priority 0 are in the list `ready`, in order. An entry is the time since
-- which the key is ready, in 16 digits, and the key. lib/stale.lua describes entries that no
-- longer count. Ready keys of other priorities are in the sorted set `ranked`. Their scores
-- are places that count up, minus the priority times PRIORITY_STEP.
local PRIORITY_STEP = 2 ^ 45

local entries, ranks, dirty_change = {}, {}, 0

-- Sets the marker that wakes one waiting process.
local function wake_waiter()
    call('ZADD', wake, 0, '1')
end

-- Puts a key behind all ready keys of this priority.
local function push(key, since, priority)
    if priority == 0 then
        entries[#entries + 1] = since .. key
    else
        ranks[#ranks + 1] = -priority * PRIORITY_STEP
        ranks[#ranks + 1] = key
    end
end

local function make_ready(key, record)
    record.phase, record.time, record.lease_priority, record.owner = 'R', stamp, nil, ''
    push(key, stamp, record.priority)
end

-- Wakes a waiter if no key was ready before.
local function flush_ready()
    if #entries > 0 and call('RPUSH', ready, unpack(entries)) == #entries then
        wake_waiter()
    end
    local count = #ranks / 2
    if count > 0 then
        local place = call('HINCRBY', meta, 'place', count) - count
        for i = 1, count do
            ranks[2 * i - 1] = format('%d', ranks[2 * i - 1] + place + i)
        end
        call('ZADD', ranked, unpack(ranks))
        if call('ZCARD', ranked) == count then
            wake_waiter()
        end
    end
    if dirty_change ~= 0 then
        call('HINCRBY', meta, 'dirty', dirty_change)
    end
end
