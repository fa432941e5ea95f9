-- Moves due keys.
--
-- ARGV: the time, and after how many deliveries a key whose lease expires is dead.
-- Reply: the numbers of ended delays, of keys that are pending again, and of keys that are
-- dead now.
local due = move_delays()
local returned, died = move_leases(tonumber(ARGV[2]))
flush_ready()
announce_delays()
return { due, returned, died }
