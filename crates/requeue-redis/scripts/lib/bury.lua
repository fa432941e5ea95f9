-- Ends the lease of a key with its death. The caller removes the key from `leases`.
local function bury(key, record, reason)
    if record.delayed then
        call('ZREM', delays, key)
    end
    record.phase, record.time, record.delayed = 'X', stamp, false
    record.priority, record.lease_priority = nil, nil
    call('ZADD', dead, stamp, key)
    call('HSET', errors, key, reason)
end
