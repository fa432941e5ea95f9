-- Handles the entries of ready keys of priority 0, and those that are stale.
--
-- Searching a long list takes too long. So a ready key that is removed, or whose priority
-- changes, leaves its entry behind. An entry counts if the record of its key says that the
-- key is ready since that time with priority 0.
--
-- A list that is mostly stale is compacted in steps of 1000 entries: a step moves the live
-- ones from the head of `ready` to the tail of `compacted`. The entries of `compacted` are
-- older than those of `ready`. It exists only during a compaction: when `ready` is empty,
-- `compacted` is renamed.
--
-- The field `stale` of `meta` is the number of stale entries, followed by `c` during a
-- compaction. If all entries are stale, both lists are deleted (invariant 3).

-- Lists up to this length are searched.
local SHORT_LIST = 64

-- Lists with fewer stale entries are never compacted.
local MANY_STALE = 1000

local STEP = 1000

-- The number of stale entries, whether there is a compaction, and the field before the call.
local stale_count, is_compacting, stale_field

local function set_stale_field(text)
    stale_field = text or '0'
    stale_count = tonumber(string.match(stale_field, '^%d+'))
    is_compacting = sub(stale_field, -1) == 'c'
end

local function count_stale()
    if not stale_count then
        set_stale_field(call('HGET', meta, 'stale'))
    end
    return stale_count
end

-- Returns the number of entries. The number of stale ones must have been read.
local function count_entries()
    local count = call('LLEN', ready)
    return is_compacting and count + call('LLEN', compacted) or count
end

-- Returns whether an entry counts, given the record of its key.
local function is_live(entry, text)
    return text and sub(text, 1, 1) == 'R' and sub(text, 3, 18) == sub(entry, 1, 16)
        and sub(text, 19, 22) == '+000'
end

-- Removes up to `count` entries from the head. Returns them, or false.
local function pop_entries(count)
    local found = is_compacting and call('LPOP', compacted, count)
    return found or call('LPOP', ready, count)
end

-- Returns the keys of entries and their records.
local function read_entries(entries)
    local keys = {}
    for i = 1, #entries do
        keys[i] = sub(entries[i], 17)
    end
    return keys, call('HMGET', records, unpack(keys))
end

-- Removes a ready key from its list or from `ranked`.
local function leave(key, record)
    if record.priority ~= 0 then
        call('ZREM', ranked, key)
    elseif count_stale() and (is_compacting or call('LLEN', ready) > SHORT_LIST) then
        stale_count = stale_count + 1
    else
        call('LREM', ready, -1, record.time .. key)
    end
end

local function delete_stale_lists()
    if stale_count > 0 and stale_count == count_entries() then
        call('UNLINK', ready, compacted)
        stale_count, is_compacting = 0, false
    end
end

local function compact_step()
    local entries, live = call('LPOP', ready, STEP) or {}, {}
    if #entries > 0 then
        local _, texts = read_entries(entries)
        for i = 1, #entries do
            if is_live(entries[i], texts[i]) then
                live[#live + 1] = entries[i]
            end
        end
        stale_count = stale_count - #entries + #live
    end
    if #live > 0 then
        call('RPUSH', compacted, unpack(live))
        is_compacting = true
    end
end

-- Ends a compaction if one of the lists is empty.
local function end_compaction()
    if is_compacting and call('EXISTS', compacted) == 0 then
        is_compacting = false
    elseif is_compacting and call('EXISTS', ready) == 0 then
        call('RENAME', compacted, ready)
        is_compacting = false
    end
end

local function is_mostly_stale()
    return stale_count >= MANY_STALE and stale_count * 2 >= count_entries()
end

-- Writes the number of stale entries. All records must be written before. Starts a
-- compaction, or continues it.
local function flush_stale()
    if not stale_count then
        return
    end
    delete_stale_lists()
    end_compaction()
    if is_compacting or is_mostly_stale() then
        compact_step()
        end_compaction()
    end
    local field = stale_count .. (is_compacting and 'c' or '')
    if field ~= stale_field then
        call('HSET', meta, 'stale', field)
        stale_field = field
    end
end
