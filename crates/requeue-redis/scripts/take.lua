-- Takes tokens of a limiter.
--
-- KEYS: the limiter. ARGV: the time, the interval, the burst, the number of tokens, and the
-- longest wait.
-- Reply: 1 if the tokens were taken, otherwise 0, and how long to wait for them.
local limiter = KEYS[1]

-- A limiter without debt needs no state. It is kept for another hour, in milliseconds, in
-- case the clock is set back.
local KEPT = 3600000

local state = call('GET', limiter)
local wait, after = reserve(state, tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
if wait > tonumber(ARGV[5]) then
    return { 0, format('%.0f', wait) }
end
local debt = math.min(string.match(after, '^%d+') - now, 2 ^ 52)
call('SET', limiter, after, 'PX', format('%.0f', math.ceil(debt / 1000) + KEPT))
return { 1, format('%.0f', wait) }
