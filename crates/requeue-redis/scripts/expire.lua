-- Moves what is due. ARGV: the time, and how many grants without an end make a key dead.
-- Answers with how many delays were over, how many keys are ready again, and how many dead.
local over = move_delays()
local returned, died = move_leases(tonumber(ARGV[2]))
return { over, returned, died }
