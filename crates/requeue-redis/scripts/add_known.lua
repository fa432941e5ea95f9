-- A key that needs no more than it has ends the call here: `values` are the states of all.
local count = #ARGV - 2
local values = call('HMGET', states, unpack(ARGV, 3))
local kind = count == 1 and values[1] and byte(values[1])
if kind == 81 or kind == 68 then -- Q or D
    return 'u'
end
