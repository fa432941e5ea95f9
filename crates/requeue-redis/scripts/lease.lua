-- Hands out ready keys. ARGV: the time, the owner, how many keys at most, how long the
-- leases last, and how many grants without an end make a key dead.
-- Answers with: how long until more may be ready (-1: never), how many keys are ready now
-- (-1: the queue is paused), the first token (the others follow it one by one), for how
-- many keys the deliveries, failures and priority are not 1, 0 and 0; for each of those its
-- place, its deliveries, its failures and its priority; the length of the list of times.lua,
-- in pairs; that list; and the keys.
--
-- Most leases are plain: nothing is due, the queue is not paused, no entry of the line is
-- stale, and `ranked` is empty. The field of `states` that is no key tells of the last
-- lease: its token; until when leases are plain, which is no longer than UNWATCHED; a
-- colon, or `!` if a key may have failures, or a ready one be suspect; and its owner, if that
-- is not noted in `meta`. Whoever changes any of that for the worse tells, see
-- last.lua, and the next lease finds out anew.

local before = call('HGET', states, '') or '00000000000000000000000000000000:'
local plain, max = tonumber(sub(before, 17, 32)), tonumber(ARGV[3])
local first, last = now, stamp
if tonumber(sub(before, 1, 16)) >= now then
    first = sub(before, 1, 16) + 1
end
local keys, paused, entries, others, ranked_too = nil, false, 0, 0, false
if now < plain then
    keys = max > 0 and call('LPOP', ready, max) or {}
else
    keys, paused, entries, plain, others, ranked_too = rare(tonumber(ARGV[5]), max, first)
    before = call('HGET', states, '') or before
end

local count = #keys
local failing = call('EXISTS', failures) == 1
local odd = failing or byte(before, 33) == 33 -- !
local answer, fields, times = { -1, 0, first, 0 }, {}, {}
if count > 0 then
    local look = odd or ranked_too
    local values = look and call('HMGET', states, unpack(keys))
    if not look then
        times = times_in_line(keys)
    end
    local delayed = ranked_too and call('ZMSCORE', delays, unpack(keys))
    local failed = failing and call('HMGET', failures, unpack(keys))
    local deadline, fresh_holder = now + ARGV[4], '1:' .. ARGV[2]
    local score, scores = format('%.0f', deadline - USUAL), {}
    -- Whole numbers are printed in a fifth of the time, where they have 64 bits.
    local digits = format('%d', 2 ^ 40) == '1099511627776' and '%016d' or '%016.0f'
    for i = 1, count do
        local key = keys[i]
        if i > 1 or first > now then
            last = format(digits, first + i - 1)
        end
        scores[2 * i - 1], scores[2 * i] = score, key
        fields[2 * i - 1] = key
        if not look or (#values[i] == 17 and not (failed and failed[i])) then
            fields[2 * i] = 'P' .. last .. fresh_holder
        else
            local value, levels, priority = values[i], '', 0
            if byte(value) == 64 then -- @, see level.lua
                local planned = sub(value, 2, 5)
                local still = delayed[i] and planned or '----'
                levels, priority = '@' .. still .. planned, tonumber(planned)
                value = sub(value, 10)
            end
            local deliveries, a = (tonumber(sub(value, 18)) or 0) + 1, #answer
            local failures_of = failed and failed[i]
            fields[2 * i] = levels ..
                'P' .. last .. deliveries .. (failures_of and '!' or ':') .. ARGV[2]
            answer[4] = answer[4] + 1
            answer[a + 1], answer[a + 2] = i, deliveries
            answer[a + 3] = failures_of and string.match(failures_of, '^%d+') or 0
            answer[a + 4] = priority
        end
    end
    if look then
        list_times(times, 1, values)
    end
    call('ZADD', leases, unpack(scores))
    plain = math.min(plain, deadline)
else
    last = sub(before, 1, 16)
end
local left, more_in = 0, 0
if count == max or entries > 0 or paused then
    left = call('LLEN', ready) - entries + others
end
odd = failing or (odd and left ~= 0)
fields[2 * count + 1], fields[2 * count + 2] =
    '', last .. format('%016.0f', plain) .. (odd and '!' or ':')
call('HSET', states, unpack(fields))
call('HSET', meta, 'o:' .. ARGV[2], stamp)
local holder = sub(before, 34)
if holder ~= '' and holder ~= ARGV[2] then
    call('HSET', meta, 'o:' .. holder, sub(before, 1, 16))
end
if left == 0 then
    local more_at = math.min(head(delays), head(leases) + USUAL)
    more_in = more_at == math.huge and -1 or math.max(0, more_at - now)
end
if not paused and (left > 0 or (count > 0 and more_in < UNWATCHED))
    and call('EXISTS', wake) == 0 then
    call('ZADD', wake, '0', '1')
end
answer[1], answer[2] = more_in, paused and -1 or left
local a = #answer + 1
answer[a] = #times / 2
for i = 1, #times do
    answer[a + i] = times[i]
end
a = a + #times
for i = 1, count do
    answer[a + i] = keys[i]
end
return answer
