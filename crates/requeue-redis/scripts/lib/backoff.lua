-- Computes the delay after a failure.

local retry_rate

-- Takes a token of the rate that the retries of the queue share. Returns how long to wait.
local function reserve_retry(interval, burst)
    local wait
    retry_rate = retry_rate or call('HGET', meta, 'arrival')
    wait, retry_rate = reserve(retry_rate, interval, burst, 1)
    call('HSET', meta, 'arrival', retry_rate)
    return wait
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
        delay = math.max(delay, reserve_retry(tonumber(interval), tonumber(burst)))
    end
    return delay
end
