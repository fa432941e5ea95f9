-- How long idle waiters may go without looking at the calendars, in microseconds. What is
-- due sooner must be known to somebody who is idle.
local UNWATCHED = 20000000

-- When the first in a calendar is due.
local function head(calendar)
    local first = call('ZRANGE', calendar, 0, 0, 'WITHSCORES')
    return tonumber(first[2]) or math.huge
end
