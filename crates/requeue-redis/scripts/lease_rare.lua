-- Moves what is due and takes keys from the line, in a lease that is not a plain one.
-- Returns the keys, whether the queue is paused, how many entries of the line are stale,
-- and until when leases are plain.
local most, max = ...
local settings = call('HMGET', meta, 'paused', 'stale')
if head(delays) <= now then
    move_delays()
end
if head(leases) + USUAL <= now then
    move_leases(most)
end
local plain = math.min(head(delays), head(leases) + USUAL, now + UNWATCHED)
local entries = tonumber(settings[2]) or 0
if settings[1] == '1' then
    return {}, true, entries, 0
end
if entries == 0 then
    return max > 0 and call('LPOP', ready, max) or {}, false, 0, plain
end
local keys
keys, entries = take(max, entries)
return keys, false, entries, entries == 0 and plain or 0
