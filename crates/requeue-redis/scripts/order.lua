-- Handing out by priority.

-- So that nobody waits for ever, one in so many goes to who stands there for the longest.
local TURN = 256

local function take_between(from, to, max)
    local keys = call('ZRANGEBYSCORE', ranked, from, to, 'LIMIT', 0, max)
    if #keys > 0 then
        call('ZREM', ranked, unpack(keys))
    end
    return keys
end

local function take_longest(entries)
    local first, key
    first, entries = first_of_line(entries, 1000)
    key = longest_ready(first)
    if key and key == first then
        call('LPOP', ready)
    elseif key then
        call('ZREM', ranked, key)
    end
    return { key or nil }, entries
end

-- The first `max` keys of all lines, and how many entries of that of 0 are still stale;
-- `entries` were. The token is that of the first key.
local function take_ranked(max, entries, token)
    local keys = {}
    local function append(more)
        for _, key in ipairs(more) do
            keys[#keys + 1] = key
        end
    end
    if token % TURN < max then
        keys, entries = take_longest(entries)
    end
    append(take_between('-inf', '(0', max - #keys))
    local usual
    usual, entries = take(max - #keys, entries)
    append(usual)
    -- Some may still be there behind stale ones.
    if call('EXISTS', ready) == 0 then
        append(take_between('0', '+inf', max - #keys))
    end
    return keys, entries
end
