-- Cancels keys that are ready, delayed or dirty. The keys are sorted.
--
-- Locks: the rows of the keys, in key order. Returns the keys that it cancelled.
create or replace function requeue.remove(q integer, keys bytea[]) returns bytea[]
language plpgsql volatile as $$
declare
    removed bytea[];
    ready bigint;
    delayed bigint;
    dirty bigint;
begin
    perform requeue.lock_keys(q, keys);
    with found as materialized (
        select i.* from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid, j.state, j.delayed_until, j.dirty from requeue.item j
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
        returning i.key, f.state, f.delayed_until, f.dirty
    )
    select array_agg(c.key), count(*) filter (where c.state = 1),
        count(c.delayed_until), count(*) filter (where c.dirty)
    into removed, ready, delayed, dirty
    from changed c;
    if removed is not null then
        perform requeue.record_counts(q, -ready, -delayed, 0, -dirty, 0, 0);
    end if;
    perform requeue.delete_empty(q, keys);
    return removed;
end
$$;
