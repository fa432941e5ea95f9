-- Migrates a partition from version 4: renames its parts.
--
-- KEYS: pairs of an old and a new name, those of the settings first. ARGV: the new version.
-- Reply: how many parts were renamed.
--
-- The old names become text. Calls of programs that use version 4 then fail before they
-- change anything.
local renamed = 0
for i = 1, #KEYS, 2 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'none' and kind ~= 'string' then
        redis.call('RENAME', KEYS[i], KEYS[i + 1])
        renamed = renamed + 1
    end
    redis.call('SET', KEYS[i], ARGV[1])
end
if redis.call('HEXISTS', KEYS[2], 'version') == 1 then
    redis.call('HSET', KEYS[2], 'version', ARGV[1])
end
return renamed
