-- Adds keys for now or later. ARGV: the time; for each key the key, when, and how long it
-- waits at least if it is dead. "When" is a letter: (N)ow; (A)fter so many microseconds;
-- (L)imited by a policy as in backoff.lua. Before it stands the priority, if that is not 0:
-- `@` and four characters.
-- Answers with one letter for each, (r)eady, (d)irty, (w)aits or d(u)plicate, and then
-- with the delay of each.
local since = 'Q' .. stamp
local fresh, answers, dirty = {}, {}, 0

local function add_now(key, value)
    local kind = value and sub(value, 1, 1)
    if not value or kind == 'A' then
        call('HSET', states, key, since .. (value and sub(value, 2) or ''))
        fresh[#fresh + 1] = key
        if value then
            suspect()
        end
        return 'r'
    elseif kind == 'P' then
        call('HSET', states, key, 'D' .. sub(value, 2))
        dirty = dirty + 1
        return 'd'
    end
    return 'u'
end

-- Whoever ends the lease of a key has to know that it has failures.
local function note_failure(key, value)
    local noted = value and string.gsub(value, '^(@?[-+%d]*[PD]%d+):', '%1!')
    if noted ~= value then
        call('HSET', states, key, noted)
    end
    return noted
end

local function own_delay(key, kind, when)
    if kind == 65 then -- A
        return tonumber(sub(when, 2))
    end
    return kind == 76 and fail(key, sub(when, 2)) or 0 -- L
end

local letters = {}
local add_level, close_lines
for i = 2, #ARGV, 3 do
    local key, when, priority = ARGV[i], ARGV[i + 1], 0
    local kind = byte(when)
    if kind == 64 then -- @
        when, priority = sub(when, 6), tonumber(sub(when, 2, 5))
        kind = byte(when)
    end
    local value = call('HGET', states, key)
    local least = 0
    if value == 'X' then
        call('HDEL', states, key)
        call('HDEL', dead, key)
        call('ZREM', buried, key)
        value, least = false, tonumber(ARGV[i + 2])
    end
    if kind == 76 then -- L
        value = note_failure(key, value)
    end
    local delay = math.max(own_delay(key, kind, when), least)
    local letter
    if priority ~= 0 or (value and byte(value) == 64) then -- @
        if not add_level then
