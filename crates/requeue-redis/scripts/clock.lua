-- The time of the engine in microseconds, or what a test says it is: a number, and its 16
-- digits.
-- Doubles hold every whole number up to 2^53, which is in the year 2255; only "%.0f" and
-- its like print all of the digits, and take as long as a command does.
local now, stamp = ARGV[1], nil
if now == '' then
    local time = call('TIME')
    local fraction = time[2]
    stamp = time[1] .. sub('000000', #fraction + 1) .. fraction
    now = tonumber(stamp)
else
    now = tonumber(now)
    stamp = format('%016.0f', now)
end
