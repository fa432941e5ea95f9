-- Hands out ready keys. ARGV: the time, the owner, how many keys at most, how long the
-- leases last, and how many grants without an end make a key dead.
-- Answers with: how long until more may be ready (-1: never), how many keys are ready now
-- (-1: the queue is paused), the first token (the others follow it one by one), for how
-- many keys the deliveries and failures are not 1 and 0; for each of those its place, its
-- deliveries and its failures; and the keys.
--
-- Most leases are plain: nothing is due, the queue is not paused, and no entry of the line
-- is stale. The field `plain` of `meta` tells after which token, and until when, they are,
-- in 16 digits each, and then has an `f` if any key has failures. Whoever changes that for
-- the earlier, or gives failures to a key, sets it to 0, and the next lease finds out anew.

-- How long idle waiters may go without looking at the calendars, in microseconds. What is
-- due sooner must be known to somebody who is idle.
local UNWATCHED = 20000000

local settings = call('HMGET', meta, 'token', 'plain')
local plain, max = tonumber(sub(settings[2] or '', 17, 32)) or 0, tonumber(ARGV[3])
local keys, paused, entries = nil, false, 0
if now < plain then
    keys = max > 0 and call('LPOP', ready, max) or {}
else
    keys, paused, entries, plain = rare(tonumber(ARGV[5]), max)
end

local count = #keys
local first, last = now, stamp
if settings[1] and tonumber(settings[1]) >= now then
    first = settings[1] + 1
end
local failing = call('EXISTS', failures) == 1
local answer = { -1, 0, first, 0 }
if count > 0 then
    local values = call('HMGET', states, unpack(keys))
    local failed = failing and call('HMGET', failures, unpack(keys))
    local deadline, holder = now + ARGV[4], ':' .. ARGV[2]
    local deadline_text, fresh_holder = format('%.0f', deadline), '1' .. holder
    local fields, scores = {}, {}
    -- Whole numbers are printed in a fifth of the time, where they have 64 bits.
    local digits = format('%d', 2 ^ 40) == '1099511627776' and '%016d' or '%016.0f'
    for i = 1, count do
        local key, value = keys[i], values[i]
        if i > 1 or first > now then
            last = format(digits, first + i - 1)
        end
        scores[2 * i - 1], scores[2 * i] = deadline_text, key
        fields[2 * i - 1] = key
        if #value == 17 and not (failed and failed[i]) then
            fields[2 * i] = 'P' .. last .. fresh_holder
        else
            local deliveries, a = (tonumber(sub(value, 18)) or 0) + 1, #answer
            fields[2 * i] = 'P' .. last .. deliveries .. holder
            answer[4] = answer[4] + 1
            answer[a + 1], answer[a + 2] = i, deliveries
            answer[a + 3] = failed and failed[i] and string.match(failed[i], '^%d+') or 0
        end
    end
    call('HSET', states, unpack(fields))
    call('ZADD', leases, unpack(scores))
    plain = math.min(plain, deadline)
    call('HSET', meta, 'token', last)
else
    last = settings[1] or '0000000000000000'
end
call('HSET', meta, 'o:' .. ARGV[2], stamp,
    'plain', last .. format('%016.0f', plain) .. (failing and 'f' or ''))

local left, more_in = 0, 0
if count == max or entries > 0 or paused then
    left = call('LLEN', ready) - entries
end
if left == 0 then
    local more_at = math.min(head(delays), head(leases))
    more_in = more_at == math.huge and -1 or math.max(0, more_at - now)
end
if not paused and (left > 0 or (count > 0 and more_in < UNWATCHED))
    and call('EXISTS', wake) == 0 then
    call('ZADD', wake, '0', '1')
end
answer[1], answer[2] = more_in, paused and -1 or left
local a = #answer
for i = 1, count do
    answer[a + i] = keys[i]
end
return answer
