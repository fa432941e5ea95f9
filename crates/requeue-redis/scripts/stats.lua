-- Counts keys, after moving the keys whose delay has ended.
--
-- ARGV: the time, and whether the user may write: (y)es or (n)o. If not, nothing is moved;
-- the first 500 due keys are counted as if they were.
-- Reply: the numbers of ready, delayed, processing, dirty, failing and dead keys, how long
-- the oldest key has been ready (-1: no key is), and whether the queue is paused.

-- The number of entries among which the oldest live one is searched.
local MAX_PEEKED = 500

-- Returns the first live entry. After many stale ones, returns the last of these: its time
-- is close to that of the first live entry.
local function peek_entry()
    local list = is_compacting and compacted or ready
    if stale_count == 0 then
        return call('LINDEX', list, 0)
    end
    local entries = call('LRANGE', list, 0, MAX_PEEKED - 1)
    if #entries == 0 then
        return call('LINDEX', ready, 0)
    end
    local _, texts = read_entries(entries)
    for i = 1, #entries do
        if is_live(entries[i], texts[i]) then
            return entries[i]
        end
    end
    return entries[#entries]
end

-- Returns how many keys would become ready and dirty, and how many delays have ended.
local function count_due()
    local keys, texts = find_due(delays)
    local to_ready, to_dirty = 0, 0
    for i = 1, #keys do
        local phase = sub(texts[i], 1, 1)
        to_ready = to_ready + (phase == 'A' and 1 or 0)
        to_dirty = to_dirty + (phase == 'P' and 1 or 0)
    end
    return to_ready, to_dirty, #keys
end

local to_ready, to_dirty, ended = 0, 0, 0
if ARGV[2] == 'y' then
    move_delays()
    flush_ready()
else
    to_ready, to_dirty, ended = count_due()
end
local settings = call('HMGET', meta, 'dirty', 'paused', 'stale')
set_stale_field(settings[3])
local ready_count = count_entries() - stale_count + call('ZCARD', ranked) + to_ready
local _, since = oldest_ready(peek_entry())
local age = since and math.max(0, now - since) or (to_ready > 0 and 0 or -1)
local dead_count = call('ZCARD', dead)
return { ready_count, call('ZCARD', delays) - ended, call('ZCOUNT', leases, '-inf', '(inf'),
    (tonumber(settings[1]) or 0) + to_dirty, call('HLEN', errors) - dead_count, dead_count,
    age, settings[2] == '1' and 1 or 0 }
