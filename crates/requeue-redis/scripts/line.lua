-- The line of ready keys.

-- Puts keys at its end. If nobody stood in it, a waiter is told.
local function line_up(keys)
    if #keys > 0 and call('RPUSH', ready, unpack(keys)) == #keys then
        call('ZADD', wake, 0, '1')
    end
end

local function count_dirty(change)
    if change ~= 0 then
        call('HINCRBY', meta, 'dirty', change)
    end
end
