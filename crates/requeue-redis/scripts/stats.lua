-- Tells how the queue stands. ARGV: the time.
-- Answers with the numbers of keys that are ready, delayed, processing, dirty, failing and
-- dead, how long the first has been ready (-1: there is none), and whether it is paused.
move_delays()
local entries = stale_count()
local oldest = -1
local first = call('LINDEX', ready, 0)
while first and entries > 0 and call('HEXISTS', stale, first) == 1 do
    call('LPOP', ready)
    pass_over(first)
    entries = set_stale(entries - 1)
    first = call('LINDEX', ready, 0)
end
if first then
    oldest = math.max(0, now - sub(call('HGET', states, first), 2, 17))
end
local settings = call('HMGET', meta, 'dirty', 'paused')
return { call('LLEN', ready) - entries, call('ZCARD', delays), call('ZCOUNT', leases, '-inf', '(inf'),
    tonumber(settings[1]) or 0, call('HLEN', failures), call('HLEN', dead), oldest,
    settings[2] == '1' and 1 or 0 }
