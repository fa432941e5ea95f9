local function clear_failures(key, record)
    if record.failures > 0 then
        record.failures = 0
        call('HDEL', errors, key)
    end
end
