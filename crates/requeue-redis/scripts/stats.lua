-- Counts keys, after moving the keys whose delay has ended.
--
-- ARGV: the time.
-- Reply: the numbers of ready, delayed, processing, dirty, failing and dead keys, how long
-- the oldest key has been ready (-1: no key is), and whether the queue is paused.
move_delays()
flush_ready()
local _, since = oldest_ready(math.huge)
flush_stale()
local settings = call('HMGET', meta, 'dirty', 'paused')
local ready_count = call('LLEN', ready) - count_stale() + call('ZCARD', ranked)
local dead_count = call('ZCARD', dead)
return { ready_count, call('ZCARD', delays), call('ZCOUNT', leases, '-inf', '(inf'),
    tonumber(settings[1]) or 0, call('HLEN', errors) - dead_count, dead_count,
    since and math.max(0, now - since) or -1, settings[2] == '1' and 1 or 0 }
