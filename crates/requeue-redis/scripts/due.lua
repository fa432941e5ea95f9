-- What becomes ready by itself, at most 500 keys in each call.

local function due(calendar, score)
    return call('ZRANGEBYSCORE', calendar, '-inf', score, 'LIMIT', 0, 500)
end

-- Adds the keys whose delay is over: how many.
local function move_delays()
    local keys = due(delays, stamp)
    if #keys == 0 then
        return 0
    end
    local values = call('HMGET', states, unpack(keys))
    local fields, fresh, ranks, dirty, again = {}, {}, {}, 0, false
    for i, key in ipairs(keys) do
        local value, level, held = split(values[i])
        local kind = value and sub(value, 1, 1)
        if not value or kind == 'A' then
            again = again or value
            stand(key, level, fresh, ranks)
            fields[#fields + 1] = key
            fields[#fields + 1] =
                join('Q' .. stamp .. (value and sub(value, 2) or ''), level, 0)
        elseif kind == 'P' then
            dirty = dirty + 1
            fields[#fields + 1] = key
            fields[#fields + 1] = join('D' .. sub(value, 2), level, held)
        end
    end
    if #fields > 0 then
        call('HSET', states, unpack(fields))
    end
    call('ZREM', delays, unpack(keys))
    count_dirty(dirty)
    line_up(fresh)
    rank(ranks)
    if again then
        suspect()
    end
    return #keys
end

-- Ends the leases that have run out: how many keys are ready again, and how many dead.
-- Dead is who was granted `most` times.
local function move_leases(most)
    local keys = due(leases, format('%.0f', now - USUAL))
    if #keys == 0 then
        return 0, 0
    end
    local values = call('HMGET', states, unpack(keys))
    local fields, fresh, ranks, dirty, died = {}, {}, {}, 0, 0
    for i, key in ipairs(keys) do
        local value, level, held = split(values[i])
        local deliveries, owner = string.match(value, '^(%d+)[:!](.*)$', 18)
        if sub(value, 1, 1) == 'D' then
            dirty = dirty - 1
        end
        fields[#fields + 1] = key
        if tonumber(deliveries) < most then
            level = math.max(level or held, held)
            stand(key, level, fresh, ranks)
            fields[#fields + 1] = join('Q' .. stamp .. deliveries, level, 0)
        else
            local times = deliveries == '1' and ' time' or ' times'
            bury(key, deliveries, owner,
                'its lease expired ' .. deliveries .. times .. ' in a row')
            fields[#fields + 1] = 'X'
            died = died + 1
        end
    end
    call('HSET', states, unpack(fields))
    call('ZREM', leases, unpack(keys))
    count_dirty(dirty)
    line_up(fresh)
    rank(ranks)
    if died < #keys then
        suspect()
    end
    return #keys - died, died
end
