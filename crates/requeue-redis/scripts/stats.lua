-- Tells how the queue stands. ARGV: the time.
-- Answers with the numbers of keys that are ready, delayed, processing, dirty, failing and
-- dead, how long the first has been ready (-1: there is none), and whether it is paused.
move_delays()
local entries = stale_count()
local oldest = -1
local first, since
first, entries = first_of_line(entries, math.huge)
first, since = longest_ready(first)
if first then
    oldest = math.max(0, now - since)
end
local settings = call('HMGET', meta, 'dirty', 'paused')
return { call('LLEN', ready) - entries + call('ZCARD', ranked), call('ZCARD', delays),
    call('ZCOUNT', leases, '-inf', '(inf'),
    tonumber(settings[1]) or 0, call('HLEN', failures), call('HLEN', dead), oldest,
    settings[2] == '1' and 1 or 0 }
