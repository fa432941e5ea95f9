-- Reads the clock. ARGV[1] is empty for the server's clock; tests pass their own time.
--
-- Sets `now` to the time in microseconds, and `stamp` to its 16 digits. A Lua number holds
-- every integer up to 2^53, which is the year 2255. `tostring` would print only 14 digits.
local now, stamp = ARGV[1], nil
if now == '' then
    local time = call('TIME')
    stamp = time[1] .. sub('000000', #time[2] + 1) .. time[2]
    now = tonumber(stamp)
else
    now = tonumber(now)
    stamp = format('%016d', now)
end
