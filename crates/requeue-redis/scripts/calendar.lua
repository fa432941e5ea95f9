-- When the first in a calendar is due.
local function head(calendar)
    local first = call('ZRANGE', calendar, 0, 0, 'WITHSCORES')
    return tonumber(first[2]) or math.huge
end
