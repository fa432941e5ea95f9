-- How long a key waits after a failure.

local arrival

-- Takes a share of the rate of the whole queue, by GCRA: how long to wait for it, at most
-- until the last time that doubles can tell, see clock.lua.
local function reserve(interval, burst)
    arrival = arrival or tonumber(call('HGET', meta, 'arrival')) or 0
    arrival = math.max(arrival, now) + interval
    call('HSET', meta, 'arrival', format('%.0f', arrival))
    return math.max(0, math.min(arrival - burst * interval, 2 ^ 53) - now)
end

-- Counts a failure of a key. Returns how many there were before. Without an error, the one
-- before is kept.
local function count_failure(key, error)
    local before = call('HGET', failures, key)
    local count, text = 0, ''
    if before then
        count, text = string.match(before, '^(%d+):(.*)$')
        count = tonumber(count)
    end
    text = format('%.0f', count + 1) .. ':' .. (error or text)
    if call('HSET', failures, key, text) == 1 then
        suspect()
    end
    return count
end

-- Counts a failure of a key. Returns its delay. `policy` is "base:longest:interval:burst" in
-- microseconds, with an interval of 0 for no rate.
local function fail(key, policy, error)
    local base, longest, interval, burst = string.match(policy, '^(%d+):(%d+):(%d+):(%d+)')
    base, longest, interval = tonumber(base), tonumber(longest), tonumber(interval)
    local count = count_failure(key, error)
    local delay = longest
    if count < 64 then
        delay = math.min(longest, base * 2 ^ count)
    end
    if interval > 0 then
        delay = math.max(delay, reserve(interval, tonumber(burst)))
    end
    return delay
end
