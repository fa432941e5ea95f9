-- Puts an entry into `states` and `leases` that is longer than any key and never due.
-- With it Redis keeps both in the encoding for large ones from the start. The one for small
-- ones is searched from end to end, and with a hundred keys in work that costs more than
-- all the rest of a call.
local ballast = string.rep('-', 1025)
call('HSETNX', states, ballast, '')
call('ZADD', leases, 'inf', ballast)
return 1
