-- Moves what is due and takes keys from the lines, in a lease that is not a plain one.
-- Returns the keys, whether the queue is paused, how many entries of the line are stale,
-- until when leases are plain, how many ready keys have a priority, and whether one of
-- those that are handed out may.
local most, max, token = ...
local settings = call('HMGET', meta, 'paused', 'stale')
if head(delays) <= now then
    move_delays()
end
if head(leases) + USUAL <= now then
    move_leases(most)
end
local plain = math.min(head(delays), head(leases) + USUAL, now + UNWATCHED)
local entries = tonumber(settings[2]) or 0
local others = call('ZCARD', ranked)
if settings[1] == '1' then
    return {}, true, entries, 0, others, false
end
local keys, ranked_too = nil, others > 0
if ranked_too then
    keys, entries = take_ranked(max, entries, token)
    others = call('ZCARD', ranked)
else
    keys, entries = take(max, entries)
end
return keys, false, entries, entries + others == 0 and plain or 0, others, ranked_too
