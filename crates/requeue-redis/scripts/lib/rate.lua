-- Shared rates (GCRA).
--
-- The state of a rate is text: the theoretical arrival time, a colon, and the time at which
-- it was computed. If the clock is before the latter, it was set back: no time has passed.

-- Takes `count` tokens. Returns how long to wait for them, and the new state.
local function reserve(state, interval, burst, count)
    local arrival, at = string.match(state or '', '^(%d+):(%d+)$')
    local debt = math.max(0, (tonumber(arrival) or 0) - math.max(now, tonumber(at) or 0))
    debt = debt + count * interval
    -- A time after the longest wait is still exact in a Lua number.
    local wait = math.min(math.max(0, debt - burst * interval), 2 ^ 52)
    return wait, format('%.0f:%s', now + math.min(debt, 2 ^ 60), stamp)
end
