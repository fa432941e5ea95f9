-- One key that is not known ends the call here.
if count == 1 and not kind then
    call('HSET', states, ARGV[3], 'Q' .. stamp)
    if call('RPUSH', ready, ARGV[3]) == 1 then
        call('ZADD', wake, '0', '1')
    end
    return 'r'
end
