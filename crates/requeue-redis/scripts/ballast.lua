-- Adds an entry that is longer than any key, and never due, to `records` and `leases`.
--
-- Redis keeps a small hash or sorted set without long entries in a compact encoding that is
-- searched from end to end. With a hundred keys in it, that takes longer than the rest of a
-- call.
local ballast = string.rep('-', 1025)
call('HSETNX', records, ballast, '')
call('ZADD', leases, 'inf', ballast)
return 1
