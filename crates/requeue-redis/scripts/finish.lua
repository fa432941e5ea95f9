-- Finishes leases.
--
-- ARGV: the time, the number of leases, their keys (all different), and for each the 16
-- digits of its token, a letter, and details. The letters are (S)ucceed; (D)one; requeue
-- (A)fter a delay in microseconds; re(T)ry with a policy, see lib/backoff.lua, a colon and
-- the error; (F)ailed, retry after a delay, a colon and the error; (G)ive up with an error;
-- (R)elease.
-- Reply: one letter for each lease: (d)one, (r)eady, delayed and thus (w)aiting, dead (x), or
-- (l)ost; then the delays of the waiting keys.
local count = tonumber(ARGV[2])
local texts = call('HMGET', records, unpack(ARGV, 3, count + 2))
local reply = { '' }

-- Removes the lease from the record. Returns its priority and the deliveries.
local function end_lease(record)
    local priority, deliveries = record.lease_priority, record.deliveries
    record.phase, record.time, record.lease_priority, record.owner = 'A', NEVER, nil, ''
    record.deliveries = 0
    return priority, deliveries
end

-- Makes the key pending with at least the priority of its lease. Returns the delay.
local function requeue(key, record, priority, delay)
    record.priority = math.max(record.priority or priority, priority)
    if delay > 0 then
        delay_by(key, record, delay)
    end
    return delay
end

-- Ends the lease. Returns the delay of a key that runs again, nil otherwise.
local function end_with(how, details, key, record)
    local priority, deliveries = end_lease(record)
    if how == 'T' then
        local policy, error = string.match(details, '^(%d+:%d+:%d+:%d+):(.*)$')
        return requeue(key, record, priority, fail(key, record, policy, error))
    elseif how == 'F' then
        local delay, error = string.match(details, '^(%d+):(.*)$')
        count_failure(key, record, error)
        return requeue(key, record, priority, tonumber(delay))
    elseif how == 'A' then
        clear_failures(key, record)
        return requeue(key, record, priority, tonumber(details))
    elseif how == 'R' then
        record.deliveries = deliveries - 1
        return requeue(key, record, priority, 0)
    elseif how ~= 'D' then
        clear_failures(key, record)
    end
end

-- Returns the letter of the reply.
local function finish(key, record, how, details)
    local is_dirty = record.phase == 'D'
    if is_dirty then
        dirty_change = dirty_change - 1
    elseif how == 'G' then
        bury(key, record, details)
        return 'x'
    end
    local delay = end_with(how, details, key, record)
    if is_dirty or delay == 0 then
        make_ready(key, record)
        return 'r'
    elseif delay then
        reply[#reply + 1] = delay
        return 'w'
    end
    return 'd'
end

local letters, gone = {}, {}
for i = 1, count do
    local key, text, request = ARGV[i + 2], texts[i], ARGV[i + 2 + count]
    local phase, how = text and sub(text, 1, 1), sub(request, 17, 17)
    if (phase ~= 'P' and phase ~= 'D') or sub(text, 3, 18) ~= sub(request, 1, 16) then
        letters[i] = 'l'
    elseif (how == 'S' or how == 'D') and sub(text, 1, 2) == 'P.' and sub(text, 23, 24) == '0:' then
        -- The usual case: not dirty, delayed or failing. It needs no table for the record.
        letters[i] = 'd'
        gone[#gone + 1] = key
    else
        local record = decode(text)
        letters[i] = finish(key, record, how, sub(request, 18))
        save(key, record)
        call('ZREM', leases, key)
    end
end
if #gone > 0 then
    call('ZREM', leases, unpack(gone))
    call('HDEL', records, unpack(gone))
end
flush_ready()
announce_delays()
reply[1] = table.concat(letters)
return reply
