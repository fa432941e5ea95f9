-- Tells of the queue, and makes it if there is none. ARGV: the time, the version of the
-- records that the caller knows, and with how many partitions it is made; with 0, it is not.
-- Answers with the version and the partitions of the queue as it is; with nothing if there
-- is none.
local settings = call('HMGET', meta, 'version', 'partitions')
if settings[1] then
    return settings
end
if ARGV[3] == '0' then
    return false
end
call('HSET', meta, 'version', ARGV[2], 'partitions', ARGV[3])
return { ARGV[2], ARGV[3] }
