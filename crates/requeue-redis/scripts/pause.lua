-- Pauses the queue or resumes it. ARGV: the time, and which: 1 or 0.
call('HSET', meta, 'paused', ARGV[2])
unsettle()
if ARGV[2] == '0' and call('EXISTS', ready, ranked) > 0 then
    call('ZADD', wake, 0, '1')
end
return 1
