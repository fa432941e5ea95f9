-- Returns the settings of the queue, which is created if it does not exist.
--
-- KEYS: the settings, and where version 4 had them. ARGV: the time, the version of the
-- format, and the number of partitions of a new queue; with 0, none is created.
-- Reply: the version and the number of partitions of the queue; nil without a queue. The
-- settings of a migrated queue are replaced by text, which is the newer version.
local function settings_of(name)
    local kind = call('TYPE', name).ok
    if kind == 'hash' then
        return call('HMGET', name, 'version', 'partitions')
    end
    return { kind == 'string' and call('GET', name), '1' }
end

local settings = settings_of(KEYS[1])
if not settings[1] and call('TYPE', KEYS[2]).ok == 'hash' then
    settings = settings_of(KEYS[2])
end
if settings[1] then
    return settings
end
if ARGV[3] == '0' then
    return false
end
call('HSET', KEYS[1], 'version', ARGV[2], 'partitions', ARGV[3])
return { ARGV[2], ARGV[3] }
