-- Leases ready keys, after moving due keys.
--
-- ARGV: the time, the owner, the most keys to lease, how long the leases last, after how many
-- deliveries a key whose lease expires is dead, and the greatest token that the caller knows.
-- Reply: how long until more keys may be ready (-1: never); the number of keys that are
-- still ready (-1: the queue is paused); the token of the first key, from which the others
-- count up; the time; then each key and its record from before the lease.

-- A waiting process looks for keys at least this often, in microseconds. It must be woken for
-- keys that are due earlier.
local WAITERS_LOOK = 20000000

-- One delivery in this many goes to the oldest key, so that no priority starves.
local OLDEST_TURN = 256

-- A lease gives up after this many stale entries, so that the call stays short.
local MAX_STALE = 1000

local owner, max, duration = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local settings = call('HMGET', meta, 'token', 'paused', 'stale')
local first_token = math.max(now, (tonumber(settings[1]) or 0) + 1, ARGV[6] + 1)
local is_paused = settings[2] == '1'
set_stale_field(settings[3])

-- Later than any time.
local NEVER_DUE = 2 ^ 53

-- Returns when the first key of a calendar is due. The ballast is due at `inf`.
local function next_due(calendar)
    local first = tonumber(call('ZRANGE', calendar, 0, 0, 'WITHSCORES')[2]) or NEVER_DUE
    return math.min(first, NEVER_DUE)
end

-- The keys that were taken from `ready` and `ranked`, and their records.
local keys, texts = {}, {}

local function take(key, text)
    local count = #keys + 1
    keys[count], texts[count] = key, text
end

local function take_oldest()
    local oldest, _, entry = oldest_ready(first_entry(MAX_STALE))
    if entry then
        pop_entries(1)
    elseif oldest then
        call('ZREM', ranked, oldest)
    end
    if oldest then
        take(oldest, call('HGET', records, oldest))
    end
end

local function take_ranked(from_score, to_score)
    local more = call('ZRANGEBYSCORE', ranked, from_score, to_score, 'LIMIT', 0, max - #keys)
    if #more > 0 then
        call('ZREM', ranked, unpack(more))
        for _, key in ipairs(more) do
            take(key, call('HGET', records, key))
        end
    end
end

local function take_listed()
    local give_up_at = stale_count - MAX_STALE
    while #keys < max and (stale_count == 0 or stale_count > give_up_at) do
        local found = pop_entries(max - #keys)
        if not found then
            break
        end
        local more, more_texts = read_entries(found)
        if #keys == 0 and stale_count == 0 and not is_compacting then
            keys, texts = more, more_texts
            return
        end
        for i = 1, #found do
            if stale_count == 0 or is_live(found[i], more_texts[i]) then
                take(more[i], more_texts[i])
            else
                stale_count = stale_count - 1
            end
        end
    end
    delete_stale_lists()
end

-- Takes keys by priority. The scores of positive priorities are negative.
local function take_keys()
    if first_token % OLDEST_TURN < max then
        take_oldest()
    end
    local has_ranked = call('EXISTS', ranked) == 1
    if has_ranked then
        take_ranked('-inf', '(0')
    end
    take_listed()
    -- Live entries may still follow many stale ones.
    if has_ranked and count_entries() == 0 then
        take_ranked('0', '+inf')
    end
end

-- Returns the record of a ready key after its lease began.
local function lease(text, token)
    local delayed, priority = sub(text, 2, 2), sub(text, 19, 22)
    local failures, deliveries = string.match(text, '^(%d+):(%d+)', 23)
    -- A key that is also delayed is still pending.
    local pending_priority = delayed == '*' and priority or '----'
    return 'P' .. delayed .. token .. pending_priority ..
        format('%d:%d:', failures, deliveries + 1) .. priority .. owner
end

local due_at = math.min(next_due(delays), next_due(leases))
if due_at <= now then
    move_delays()
    move_leases(tonumber(ARGV[5]))
    flush_ready()
    due_at = math.min(next_due(delays), next_due(leases))
end
if max > 0 and not is_paused then
    take_keys()
end
local count, reply = #keys, { 0, 0, first_token, stamp }
if count > 0 then
    local deadline, scores, fields = format('%d', now + duration), {}, {}
    local usual = '----0:1:+000' .. owner
    for i = 1, count do
        local key, text, token = keys[i], texts[i], format('%016d', first_token + i - 1)
        local is_usual = byte(text, 2) == 46 and sub(text, 19) == '+0000:0:' -- 46 is `.`
        fields[2 * i - 1] = key
        fields[2 * i] = is_usual and 'P.' .. token .. usual or lease(text, token)
        scores[2 * i - 1], scores[2 * i] = deadline, key
        reply[2 * i + 3], reply[2 * i + 4] = key, text
    end
    call('HSET', records, unpack(fields))
    call('ZADD', leases, unpack(scores))
    call('HSET', meta, 'token', format('%016d', first_token + count - 1))
    due_at = math.min(due_at, now + duration)
end
call('HSET', meta, 'o:' .. owner, stamp)
flush_stale()

local left = count_entries() - stale_count + call('ZCARD', ranked)
local more_in = left > 0 and 0 or math.max(0, due_at - now)
-- A caller that wanted keys and got none will wait, and knows for how long.
local will_wait = count == 0 and max > 0
if not is_paused and (left > 0 or (more_in < WAITERS_LOOK and not will_wait)) then
    wake_waiter()
end
reply[1] = due_at == NEVER_DUE and left == 0 and -1 or more_in
reply[2] = is_paused and -1 or left
return reply
