-- Makes the queue, or checks that it is the one that is meant. ARGV: the time, the version
-- of the records that the caller knows, and how many partitions it expects.
-- Answers with the version and the partitions of the queue as it is.
local settings = call('HMGET', meta, 'version', 'partitions')
if not settings[1] then
    call('HSET', meta, 'version', ARGV[2], 'partitions', ARGV[3])
    return { ARGV[2], ARGV[3] }
end
return settings
