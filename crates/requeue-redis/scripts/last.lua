-- The last lease, see lease.lua.

-- Lets the next lease find out anew whether it is a plain one.
local function unsettle()
    local last = call('HGET', states, '')
    if last then
        call('HSET', states, '', sub(last, 1, 16) .. '0000000000000000' .. sub(last, 33))
    end
end

-- Lets leases look at each key: one that is ready has failures, or deliveries before, or
-- does not stand in the line of priority 0 by its time.
local function suspect()
    local last = call('HGET', states, '') or '00000000000000000000000000000000:'
    if byte(last, 33) ~= 33 then -- !
        call('HSET', states, '', sub(last, 1, 32) .. '!' .. sub(last, 34))
    end
end
