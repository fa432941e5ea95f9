-- Entries of the line that no longer count.
--
-- A key that is removed while it is ready leaves its entry in the line, since finding it
-- there would take as long as the line is. `stale` tells how many entries of a key are to
-- be passed over, and `meta` how many there are in all. They stand before the entry that
-- counts, if there is one: an entry is added at the end.
-- If no entry counts, the line is deleted: it is empty exactly if no key is ready.

local function stale_count()
    return tonumber(call('HGET', meta, 'stale')) or 0
end

-- Passes over the entry that was just taken from the line: whether it was a stale one.
local function pass_over(key)
    local left = tonumber(call('HGET', stale, key))
    if not left then
        return false
    end
    if left > 1 then
        call('HINCRBY', stale, key, -1)
    else
        call('HDEL', stale, key)
    end
    return true
end

local function set_stale(count)
    if count > 0 and count == call('LLEN', ready) then
        call('DEL', ready, stale)
        count = 0
    end
    call('HSET', meta, 'stale', count)
    unsettle()
    return count
end

-- The first `max` keys of the line, of which `count` entries are stale, and how many are
-- still stale. It gives up after a thousand of those, so that the call stays short.
local function take(max, count)
    if count == 0 then
        return max > 0 and call('LPOP', ready, max) or {}, 0
    end
    local keys, passed = {}, 0
    while #keys < max and passed < 1000 do
        local entries = call('LPOP', ready, max - #keys)
        if not entries then
            break
        end
        for _, key in ipairs(entries) do
            if pass_over(key) then
                passed = passed + 1
            else
                keys[#keys + 1] = key
            end
        end
    end
    return keys, set_stale(count - passed)
end

-- The first key of the line, of which `count` entries are stale, and how many still are.
-- It passes over `most` of them before it gives up.
local function first_of_line(count, most)
    for _ = 0, most do
        local first = call('LINDEX', ready, 0)
        if not first or count == 0 or not pass_over(first) then
            return first, count
        end
        call('LPOP', ready)
        count = set_stale(count - 1)
    end
    return false, count
end

-- Rewrites the line once most of it is stale. Each removal pays for two entries of that.
local function tidy(count)
    local length = call('LLEN', ready)
    if count < 1000 or count * 2 < length then
        return
    end
    local keys = {}
    for _, key in ipairs(call('LRANGE', ready, 0, -1)) do
        if not pass_over(key) then
            keys[#keys + 1] = key
        end
    end
    call('DEL', ready)
    for i = 1, #keys, 500 do
        call('RPUSH', ready, unpack(keys, i, math.min(i + 499, #keys)))
    end
    set_stale(0)
end
