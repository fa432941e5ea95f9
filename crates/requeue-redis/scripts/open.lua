-- Returns the settings of the queue, which is created if it does not exist.
--
-- ARGV: the time, the version of the format, and the number of partitions of a new queue;
-- with 0, none is created.
-- Reply: the version and the number of partitions of the queue; nil without a queue.
local settings = call('HMGET', meta, 'version', 'partitions')
if settings[1] then
    return settings
end
if ARGV[3] == '0' then
    return false
end
call('HSET', meta, 'version', ARGV[2], 'partitions', ARGV[3])
return { ARGV[2], ARGV[3] }
