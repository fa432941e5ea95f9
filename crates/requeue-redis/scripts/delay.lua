-- The calendar of delays, in which the earliest time of a key wins.

local earliest

-- Delays a key: whether that changes anything.
local function delay_by(key, delay)
    local at = now + delay
    if call('ZADD', delays, 'LT', 'CH', format('%.0f', at), key) == 0 then
        return false
    end
    earliest = math.min(earliest or at, at)
    return true
end

-- Tells a waiter if something of this call comes before all else that is delayed: it has
-- to wait for less long than it was told. The same goes for the next lease.
local function tell_of_delays()
    if earliest then
        local head = call('ZRANGE', delays, 0, 0, 'WITHSCORES')
        if earliest <= tonumber(head[2]) then
            unsettle()
            call('ZADD', wake, 0, '1')
        end
    end
end
