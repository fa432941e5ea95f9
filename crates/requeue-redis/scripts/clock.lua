-- The time of the engine in microseconds, or what a test says it is.
-- Doubles hold every whole number up to 2^53, which is in the year 2255; only "%.0f" and
-- its like print all of the digits.
local call, format, sub, byte = redis.call, string.format, string.sub, string.byte
local now = tonumber(ARGV[1])
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local stamp = format('%016.0f', now)
