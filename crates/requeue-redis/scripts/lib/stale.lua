-- Handles stale entries of the list `ready`.
--
-- Searching a long list takes too long. So a ready key that is removed, or whose priority
-- changes, leaves its entry behind. An entry counts if the record of its key says that the
-- key is ready since that time with priority 0. The field `stale` of `meta` is the number of
-- stale entries. A list without any other entries is deleted (invariant 3).

-- Lists up to this length are searched.
local SHORT_LIST = 64

-- Lists with fewer stale entries are never rewritten.
local MANY_STALE = 1000

-- The number of stale entries now, and when it was read.
local stale_count, stale_read

local function set_stale_read(text)
    stale_read = tonumber(text) or 0
    stale_count = stale_read
end

local function count_stale()
    if not stale_count then
        set_stale_read(call('HGET', meta, 'stale'))
    end
    return stale_count
end

-- Returns whether an entry counts, given the record of its key.
local function is_live(entry, text)
    return text and sub(text, 1, 1) == 'R' and sub(text, 3, 18) == sub(entry, 1, 16)
        and sub(text, 19, 22) == '+000'
end

-- Removes a ready key from `ready` or `ranked`.
local function leave(key, record)
    if record.priority ~= 0 then
        call('ZREM', ranked, key)
    elseif call('LLEN', ready) > SHORT_LIST then
        stale_count = count_stale() + 1
    else
        count_stale()
        call('LREM', ready, -1, record.time .. key)
    end
end

-- Deletes the list if no entry counts.
local function delete_stale_list()
    if stale_count > 0 and stale_count == call('LLEN', ready) then
        call('DEL', ready)
        stale_count = 0
    end
end

-- Rewrites the list without stale entries.
local function compact()
    local live, all = {}, call('LRANGE', ready, 0, -1)
    for _, entry in ipairs(all) do
        if is_live(entry, call('HGET', records, sub(entry, 17))) then
            live[#live + 1] = entry
        end
    end
    call('DEL', ready)
    for i = 1, #live, 500 do
        call('RPUSH', ready, unpack(live, i, math.min(i + 499, #live)))
    end
    stale_count = 0
end

-- Writes the number of stale entries. All records must be written before. Compacts a list
-- that is mostly stale, so that each removal pays for two entries of that.
local function flush_stale()
    if not stale_count then
        return
    end
    delete_stale_list()
    if stale_count >= MANY_STALE and stale_count * 2 >= call('LLEN', ready) then
        compact()
    end
    if stale_count ~= stale_read then
        call('HSET', meta, 'stale', stale_count)
    end
end
