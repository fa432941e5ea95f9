-- Ends leases of which some do not just go away.
local count, values = ...
local gone, ended, fields, absolved, letters, answers = {}, {}, {}, {}, {}, {}
local fresh, ranks = {}, {}
local dirty = 0
-- The priority of what is planned for the key whose lease ends.
local planned

local function requeue(key, deliveries)
    fields[#fields + 1] = key
    fields[#fields + 1] = join('Q' .. stamp .. deliveries, planned, 0)
    stand(key, planned, fresh, ranks)
    return 'r'
end

local function go(key)
    local value = join(false, planned, 0)
    if value then
        fields[#fields + 1], fields[#fields + 2] = key, value
    else
        gone[#gone + 1] = key
    end
end

local function end_later(key, value, delay)
    if delay == 0 then
        return requeue(key, '')
    end
    delay_by(key, delay)
    if byte(value) == 68 then -- D
        return requeue(key, '')
    end
    go(key)
    answers[#answers + 1] = format('%.0f', delay)
    return 'w'
end

local function release(key, value)
    local deliveries = string.match(value, '^%d+', 18) - 1
    if deliveries > 0 then
        suspect()
    end
    return requeue(key, deliveries > 0 and deliveries or '')
end

local function end_for_good(key, value, reason)
    if byte(value) == 68 then -- D
        absolved[#absolved + 1] = key
        return requeue(key, '')
    end
    local deliveries, owner = string.match(value, '^(%d+)[:!](.*)$', 18)
    bury(key, deliveries, owner, reason)
    fields[#fields + 1], fields[#fields + 2] = key, 'X'
    return 'b'
end

local function end_otherwise(kind, key, value, ending, held)
    if kind ~= 66 then -- B
        planned = math.max(planned or held, held)
    end
    if kind == 82 then -- R
        return release(key, value)
    elseif kind == 84 then -- T
        local policy, error = string.match(ending, '^(%d+:%d+:%d+:%d+):(.*)$', 18)
        return end_later(key, value, fail(key, policy, error))
    elseif kind == 70 then -- F
        local delay, error = string.match(ending, '^(%d+):(.*)$', 18)
        count_failure(key, error)
        return end_later(key, value, tonumber(delay))
    elseif kind == 65 then -- A
        absolved[#absolved + 1] = key
        return end_later(key, value, tonumber(sub(ending, 18)))
    end
    return end_for_good(key, value, sub(ending, 18))
end

for i = 1, count do
    local key, ending = ARGV[i + 2], ARGV[i + 2 + count]
    local value, level, held = split(values[i])
    planned = level
    local kind = value and byte(value)
    if (kind ~= 80 and kind ~= 68) or sub(value, 2, 17) ~= sub(ending, 1, 16) then
        letters[i] = 'l'
    else
        ended[#ended + 1] = key
        if kind == 68 then -- D
            dirty = dirty - 1
        end
        local how = byte(ending, 17)
        if how == 83 then -- S
            absolved[#absolved + 1] = key
        end
        if how ~= 83 and how ~= 68 then
            letters[i] = end_otherwise(how, key, value, ending, held)
        elseif kind == 68 then
            letters[i] = requeue(key, '')
        else
            go(key)
            letters[i] = 'd'
        end
    end
end

if #ended > 0 then
    call('ZREM', leases, unpack(ended))
end
if #gone > 0 then
    call('HDEL', states, unpack(gone))
end
if #fields > 0 then
    call('HSET', states, unpack(fields))
end
if #absolved > 0 then
    call('HDEL', failures, unpack(absolved))
end
count_dirty(dirty)
line_up(fresh)
rank(ranks)
tell_of_delays()
table.insert(answers, 1, table.concat(letters))
return answers
