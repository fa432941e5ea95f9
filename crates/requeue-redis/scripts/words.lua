local call, format, sub, byte = redis.call, string.format, string.sub, string.byte

-- How long most leases last, in microseconds. The scores of `leases` are so much before
-- their deadlines: those of most leases are their tokens, and no sum has to be printed.
local USUAL = 30000000
