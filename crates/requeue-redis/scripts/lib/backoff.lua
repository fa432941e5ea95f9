-- Counts failures, and computes the delay after a failure.

local arrival

-- Takes a token of the rate that the whole queue shares (GCRA). Returns how long to wait for
-- it, at most until the last time that a Lua number holds.
local function reserve(interval, burst)
    arrival = arrival or tonumber(call('HGET', meta, 'arrival')) or 0
    arrival = math.max(arrival, now) + interval
    call('HSET', meta, 'arrival', format('%.0f', arrival))
    return math.max(0, math.min(arrival - burst * interval, 2 ^ 53) - now)
end

-- Counts a failure. Without an error, the previous one is kept. Returns the number of
-- failures before.
local function count_failure(key, record, error)
    if error then
        call('HSET', errors, key, error)
    else
        call('HSETNX', errors, key, '')
    end
    record.failures = record.failures + 1
    return record.failures - 1
end

-- Counts a failure. Returns the delay.
--
-- `policy` is "base:longest:interval:burst" in microseconds. An interval of 0 means that
-- there is no rate.
local function fail(key, record, policy, error)
    local base, longest, interval, burst = string.match(policy, '^(%d+):(%d+):(%d+):(%d+)$')
    local failures, delay = count_failure(key, record, error), tonumber(longest)
    if failures < 64 then
        delay = math.min(delay, base * 2 ^ failures)
    end
    if interval ~= '0' then
        delay = math.max(delay, reserve(tonumber(interval), tonumber(burst)))
    end
    return delay
end

local function clear_failures(key, record)
    if record.failures > 0 then
        record.failures = 0
        call('HDEL', errors, key)
    end
end
