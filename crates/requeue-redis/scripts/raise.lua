-- Adds keys if the priority of what was or is now planned for one is not 0. All from
-- level.lua to here is within a call that has met such a key: the others do not pay for
-- making these functions.
local ranks, raised_dirty = {}, 0

-- The priority of all that is planned for a key, with this.
local function plan(key, value, planned, priority)
    if not planned and priority < 0 then
        local kind = value and byte(value)
        if kind == 81 or kind == 68 or call('ZSCORE', delays, key) then -- Q or D
            planned = 0
        end
    end
    return math.max(planned or priority, priority)
end

-- Makes a key ready, or moves one that is: its state. `since` is when it became so, and
-- after that its deliveries.
local function make_ready(key, since, level)
    if #since > 16 then
        suspect()
    end
    stand(key, level, fresh, ranks)
    return 'Q' .. since
end

-- Adds a key, or, for `later`, is told before it is delayed: the letter of the answer.
function add_level(key, before, priority, later)
    local value, planned, held = split(before)
    local kind = value and byte(value)
    local level, letter = plan(key, value, planned, priority), 'u'
    if kind == 81 then -- Q
        if level ~= (planned or 0) then
            leave(key, planned)
            if level == 0 then
                suspect()
            end
            value = make_ready(key, sub(value, 2), level)
        end
    elseif kind == 80 and not later then -- P
        raised_dirty = raised_dirty + 1
        value, letter = 'D' .. sub(value, 2), 'd'
    elseif kind ~= 68 and not later then -- D
        value, letter = make_ready(key, stamp .. (value and sub(value, 2) or ''), level), 'r'
    end
    local after = join(value, level, held)
    if after ~= before then
        note(key, after)
    end
    return letter
end

-- Once all are added.
function close_lines()
    count_dirty(raised_dirty)
    rank(ranks)
    close_line()
end
