-- Leaving a line without being handed out.

-- Lines up to this length are searched: that is quicker than to pass over an entry later.
local SHORT = 64

local entries = stale_count()

local function leave_line(key)
    if call('LLEN', ready) <= SHORT then
        call('LREM', ready, -1, key)
    else
        call('HINCRBY', stale, key, 1)
        entries = entries + 1
    end
end

-- Takes a ready key out of the line of its priority; none is 0.
local function leave(key, level)
    if level then
        call('ZREM', ranked, key)
    else
        leave_line(key)
    end
end

-- Once all have left that do.
local function close_line()
    if entries > 0 then
        tidy(set_stale(entries))
    end
end

-- Writes down a state, or that there is none.
local function note(key, value)
    if value then
        call('HSET', states, key, value)
    else
        call('HDEL', states, key)
    end
end
