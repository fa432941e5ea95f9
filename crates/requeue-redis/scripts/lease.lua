-- Hands out ready keys. ARGV: the time, the owner, how many keys at most, how long the
-- leases last, and how many grants without an end make a key dead.
-- Answers with: how long until more may be ready (-1: never), whether the queue is paused,
-- how many keys are ready now, the first token (the others follow it one by one), the keys,
-- and where they are not 1 and 0: the place of a key, its deliveries, its failures.

-- How long idle waiters may go without looking at the calendars, in microseconds. What is
-- due sooner must be known to somebody who is idle.
local UNWATCHED = 5000000

local function head(calendar)
    local first = call('ZRANGE', calendar, 0, 0, 'WITHSCORES')
    return tonumber(first[2]) or math.huge
end

local settings = call('HMGET', meta, 'token', 'paused', 'stale')
local paused = settings[2] == '1'
local next_delay, next_lease = head(delays), head(leases)
if next_delay <= now then
    move_delays()
    next_delay = head(delays)
end
if next_lease <= now then
    move_leases(tonumber(ARGV[5]))
    next_delay, next_lease = head(delays), head(leases)
end

local max = paused and 0 or tonumber(ARGV[3])
local stale_entries = tonumber(settings[3]) or 0
local keys
if max == 0 then
    keys = {}
elseif stale_entries > 0 then
    keys, stale_entries = take(max, stale_entries)
else
    keys = call('LPOP', ready, max) or {}
end

local first = math.max((tonumber(settings[1]) or 0) + 1, now)
local odd = {}
if #keys > 0 then
    local values = call('HMGET', states, unpack(keys))
    local failed = call('EXISTS', failures) == 1 and call('HMGET', failures, unpack(keys))
    local deadline = now + tonumber(ARGV[4])
    local deadline_text, holder = format('%.0f', deadline), ':' .. ARGV[2]
    local fresh_holder = '1' .. holder
    local fields, scores = {}, {}
    for i = 1, #keys do
        local key, value = keys[i], values[i]
        local token = format('P%016.0f', first + i - 1)
        scores[2 * i - 1], scores[2 * i] = deadline_text, key
        fields[2 * i - 1] = key
        if #value == 17 then
            fields[2 * i] = token .. fresh_holder
            if failed and failed[i] then
                odd[#odd + 1] = { i, 1, string.match(failed[i], '^%d+') }
            end
        else
            local deliveries = sub(value, 18) + 1
            fields[2 * i] = token .. deliveries .. holder
            odd[#odd + 1] = { i, deliveries,
                failed and failed[i] and string.match(failed[i], '^%d+') or '0' }
        end
    end
    call('HSET', states, unpack(fields))
    call('ZADD', leases, unpack(scores))
    call('HSET', meta, 'token', format('%.0f', first + #keys - 1), 'o:' .. ARGV[2], stamp)
    next_lease = math.min(next_lease, deadline)
else
    call('HSET', meta, 'o:' .. ARGV[2], stamp)
end

local left = 0
if #keys == max or stale_entries > 0 then
    left = call('LLEN', ready) - stale_entries
end
local more_at = math.min(next_delay, next_lease)
local more_in = more_at == math.huge and -1 or math.max(0, more_at - now)
if not paused and (left > 0 or (#keys > 0 and more_in < UNWATCHED)) then
    call('ZADD', wake, 0, '1')
end
return { left > 0 and '0' or format('%.0f', more_in), paused and 1 or 0, left,
    format('%.0f', first), keys, odd }
