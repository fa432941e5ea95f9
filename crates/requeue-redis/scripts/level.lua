-- Priorities that are not 0, and the lines of keys that have one.
--
-- The state of a key that has one comes after `@`, the priority of what is planned for the
-- key (`----` if nothing is) and that of its lease, each in four characters. A key without
-- that has 0 for both. What is planned is that it is ready, dirty or delayed.
-- Ready keys stand in `ranked`, those of one priority in the order of the places that they
-- were given. They stand in `ready` exactly if their priority is 0.

-- How far the lines are apart in `ranked`: more than there are places.
local APART = 2 ^ 45

-- A state without priorities, that of what is planned, if it says so, and that of the
-- lease.
local function split(value)
    if not value or byte(value) ~= 64 then -- @
        return value, nil, 0
    end
    local rest = #value > 9 and sub(value, 10)
    return rest, tonumber(sub(value, 2, 5)), tonumber(sub(value, 6, 9))
end

-- The opposite. False if there is nothing to say.
local function join(value, planned, held)
    if (planned or 0) == 0 and held == 0 then
        return value
    end
    planned = planned and format('%+04d', planned) or '----'
    return '@' .. planned .. format('%+04d', held) .. (value or '')
end

-- Keeps a key for the end of its line: `fresh` is for that of 0, which is also none.
local function stand(key, level, fresh, ranks)
    if (level or 0) == 0 then
        fresh[#fresh + 1] = key
    else
        ranks[#ranks + 1] = key
        ranks[#ranks + 1] = level
    end
end

-- Puts keys at the ends of their lines: each is followed by its priority. If nobody stood
-- in any, a waiter is told.
local function rank(keys)
    local count = #keys / 2
    if count == 0 then
        return
    end
    local place = call('HINCRBY', meta, 'place', count) - count
    local scores = {}
    for i = 1, count do
        scores[2 * i - 1] = format('%.0f', place + i - keys[2 * i] * APART)
        scores[2 * i] = keys[2 * i - 1]
    end
    call('ZADD', ranked, unpack(scores))
    unsettle()
    if call('ZCARD', ranked) == count then
        call('ZADD', wake, 0, '1')
    end
end
