-- Adds keys.
--
-- ARGV: the time, the number of keys, the keys (all different), and their plans: one for
-- all keys, or one for each. A plan is the priority in four characters, a letter, the least
-- delay of a dead key, a colon, and details. The letters are (N)ow; (A)fter a delay in
-- microseconds; rate (L)imited by a policy, see lib/backoff.lua.
-- Reply: one letter for each key, (r)eady, (d)irty, delayed and thus (w)aiting, or
-- d(u)plicate; then, unless all are 0, the delays in microseconds.
local count = tonumber(ARGV[2])
local texts = call('HMGET', records, unpack(ARGV, 3, count + 2))
local plans = {}

local function plan_of(text)
    local plan = plans[text]
    if not plan then
        local priority, kind, revive_after, details =
            string.match(text, '^(....)(.)(%d+):(.*)$')
        plan = {
            priority = tonumber(priority),
            revive_after = tonumber(revive_after),
            delay = kind == 'A' and tonumber(details) or 0,
            policy = kind == 'L' and details,
            -- The record of an absent key after an add without delay.
            new = kind == 'N' and 'R.' .. stamp .. priority .. '0:0:',
        }
        plans[text] = plan
    end
    return plan
end

local function exhume(key)
    call('ZREM', dead, key)
    call('HDEL', errors, key)
    return decode(false)
end

-- Raises the priority of a key that is pending or about to be. A ready key goes to the tail
-- of its new priority.
local function raise(key, record, priority)
    priority = math.max(record.priority or priority, priority)
    if record.phase == 'R' and priority > record.priority then
        leave(key, record)
        push(key, record.time, priority)
    end
    record.priority = priority
end

local function add_now(key, record)
    if record.phase == 'A' then
        make_ready(key, record)
        return 'r'
    elseif record.phase == 'P' then
        record.phase = 'D'
        dirty_change = dirty_change + 1
        return 'd'
    end
    return 'u'
end

-- Returns the letter and the delay.
local function add(key, record, plan)
    local delay = 0
    if record.phase == 'X' then
        record, delay = exhume(key), plan.revive_after
    end
    local own_delay = plan.policy and fail(key, record, plan.policy) or plan.delay
    delay = math.max(delay, own_delay)
    raise(key, record, plan.priority)
    local letter
    if delay > 0 then
        letter = delay_by(key, record, delay) and 'w' or 'u'
    else
        letter = add_now(key, record)
    end
    save(key, record)
    return letter, delay
end

local shared_plan = #ARGV == count + 3 and plan_of(ARGV[count + 3])
local letters, reply, fields, longest = {}, { '' }, {}, 0
for i = 1, count do
    local key, text = ARGV[i + 2], texts[i]
    local plan = shared_plan or plan_of(ARGV[count + 2 + i])
    if plan.new and not text then -- the usual case; needs no table for the record
        fields[#fields + 1] = key
        fields[#fields + 1] = plan.new
        push(key, stamp, plan.priority)
        letters[i], reply[i + 1] = 'r', 0
    else
        letters[i], reply[i + 1] = add(key, decode(text), plan)
        longest = math.max(longest, reply[i + 1])
    end
end
if #fields > 0 then
    call('HSET', records, unpack(fields))
end
flush_ready()
flush_stale()
announce_delays()
reply[1] = table.concat(letters)
return longest > 0 and reply or reply[1]
