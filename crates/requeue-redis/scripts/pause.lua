-- Pauses the queue or resumes it.
--
-- ARGV: the time, and 1 to pause or 0 to resume. Reply: 1.
call('HSET', meta, 'paused', ARGV[2])
if ARGV[2] == '0' and call('EXISTS', ready, ranked) > 0 then
    call('ZADD', wake, 0, '1')
end
return 1
