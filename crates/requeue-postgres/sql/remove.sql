-- Cancels keys that are ready, delayed or dirty. The keys are sorted.
--
-- Locks: the rows of the keys, in key order. Returns the keys that it cancelled.
create or replace function requeue.remove(q integer, keys bytea[]) returns bytea[]
language plpgsql volatile as $$
declare
    removed bytea[];
begin
    perform requeue.lock_keys(q, keys);
    with found as materialized (
        select i.tid from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    ), changed as (
        update requeue.item i set
            state = case i.state when 1 then 0 else i.state end,
            since = case i.state when 1 then null else i.since end,
            dirty = false,
            pending_priority = null,
            delayed_until = null
        from found f
        where i.ctid = f.tid
            and (i.state + 0 = 1 or i.dirty or i.delayed_until is not null)
        returning i.key
    )
    select array_agg(c.key) into removed from changed c;
    perform requeue.delete_empty(q, keys);
    return removed;
end
$$;
