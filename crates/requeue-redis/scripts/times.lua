-- For how long keys were ready before they are handed out: a list of places, each followed
-- by the time of the key there and of those after it, up to the next place.

-- For how long a key of this state was ready.
local function time_of(value)
    local from = byte(value) == 64 and 11 or 2 -- @, see level.lua
    local time = now - sub(value, from, from + 15)
    return time > 0 and time or 0
end

-- Adds keys to the list whose states are `values`, from this place on. `before` is the
-- state of the key before them. Returns that of the last.
local function list_times(times, place, values, before)
    for i = 1, #values do
        local value = values[i]
        if value ~= before then
            times[#times + 1] = place + i - 1
            times[#times + 1] = time_of(value)
            before = value
        end
    end
    return before
end

-- So many keys in a row are not asked for if the one before them and the one after them
-- were ready for about the same time: to ask for all makes a cycle up to a tenth dearer.
local SKIPPED = 15

-- Whether two times are not the same to whoever measures.
local function differ(one, other)
    local apart = math.abs(one - other)
    return apart > 1000 and apart > one / 10
end

-- The list for keys that were in the line of priority 0, if none was suspect, see last.lua.
-- They stood there by their times, unless the clock has stepped back.
local function times_in_line(keys)
    local count, times, asked = #keys, {}, {}
    if count <= 4 then
        list_times(times, 1, call('HMGET', states, unpack(keys)))
        return times
    end
    for i = 1, count - 1, SKIPPED + 1 do
        asked[#asked + 1] = keys[i]
    end
    asked[#asked + 1] = keys[count]
    local values, before = call('HMGET', states, unpack(asked)), nil
    for a = 1, #asked - 1 do
        local value, place = values[a], (a - 1) * (SKIPPED + 1) + 1
        if value ~= before then
            before = list_times(times, place, { value })
        end
        local after = values[a + 1]
        if after ~= before and differ(times[#times], time_of(after)) then
            local to = math.min(place + SKIPPED, count)
            before = list_times(times, place + 1,
                call('HMGET', states, unpack(keys, place + 1, to)), before)
        end
    end
    return times
end
