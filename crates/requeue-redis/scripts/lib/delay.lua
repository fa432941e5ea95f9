-- Delays keys.

local earliest

-- Delays a key, unless it has an earlier or equal delay. Returns whether it did.
local function delay_by(key, record, micros)
    local at = now + micros
    if call('ZADD', delays, 'LT', 'CH', format('%d', at), key) == 0 then
        return false
    end
    record.delayed = true
    earliest = math.min(earliest or at, at)
    return true
end

-- Wakes a waiter if this call set the earliest of all delays: waiters must wait for less time
-- than they intended.
local function announce_delays()
    if earliest then
        local first = call('ZRANGE', delays, 0, 0, 'WITHSCORES')
        if earliest <= tonumber(first[2]) then
            wake_waiter()
        end
    end
end
