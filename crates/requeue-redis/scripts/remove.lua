-- Cancels pending keys: ready, delayed and dirty ones.
--
-- ARGV: the time, the keys (all different).
-- Reply: one letter for each key, whether it was pending: (y)es or (n)o.
local texts = call('HMGET', records, unpack(ARGV, 2))
local letters, dirty = {}, 0
for i = 2, #ARGV do
    local key, record = ARGV[i], decode(texts[i - 1])
    letters[i - 1] = record.priority and 'y' or 'n'
    if record.priority then
        if record.phase == 'R' then
            leave(key, record)
            record.phase, record.time = 'A', NEVER
        elseif record.phase == 'D' then
            record.phase = 'P'
            dirty = dirty + 1
        end
        if record.delayed then
            call('ZREM', delays, key)
        end
        record.delayed, record.priority = false, nil
        save(key, record)
    end
end
flush_stale()
if dirty > 0 then
    call('HINCRBY', meta, 'dirty', -dirty)
end
return table.concat(letters)
