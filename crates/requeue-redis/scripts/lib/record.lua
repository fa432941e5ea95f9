-- Reads and writes records, see src/record.rs for the format.

local NEVER = '0000000000000000'

-- Returns a table for the text of a record, or for a key without one.
local function decode(text)
    if not text then
        return { phase = 'A', time = NEVER, failures = 0, deliveries = 0, owner = '' }
    end
    local phase, delayed, time, priority, failures, deliveries, lease_priority, owner =
        string.match(text, '^(.)(.)(................)(....)(%d+):(%d+):(.?.?.?.?)(.*)$')
    return {
        phase = phase,
        delayed = delayed == '*',
        time = time,
        priority = tonumber(priority),
        failures = tonumber(failures),
        deliveries = tonumber(deliveries),
        lease_priority = tonumber(lease_priority),
        owner = owner,
    }
end

local function encode_priority(priority)
    return priority and format('%+04d', priority) or '----'
end

-- Writes a record, or deletes it if nothing is left to remember (invariant 1).
local function save(key, record)
    if record.phase == 'A' and not record.delayed and record.failures == 0 then
        call('HDEL', records, key)
        return
    end
    local text = record.phase .. (record.delayed and '*' or '.') .. record.time ..
        encode_priority(record.priority) ..
        format('%d:%d:', record.failures, record.deliveries)
    if record.phase ~= 'A' and record.phase ~= 'R' then
        text = text .. encode_priority(record.lease_priority) .. record.owner
    end
    call('HSET', records, key, text)
end
