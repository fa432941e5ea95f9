-- Makes up to `most` delayed keys ready that are due, the earliest first. A key that is
-- processing becomes dirty instead.
--
-- `from_time` is a time before which no delay is left, as far as the caller knows. It saves
-- reading index entries that are dead but not removed yet.
--
-- Locks: the rows of these keys. Skips locked ones. Returns how many keys it moved.
create or replace function requeue.move_due(
    q integer, at bigint, from_time bigint, most integer
) returns bigint
language plpgsql volatile as $$
declare
    rows tid[];
    pos bigint;
    ready bigint;
    dirty bigint;
begin
    select array_agg(d.tid), count(*) filter (where d.state = 0),
        count(*) filter (where d.state = 2 and not d.dirty)
    into rows, ready, dirty
    from (
        select i.ctid as tid, i.state, i.dirty from requeue.item i
        where i.queue = q and i.delayed_until between from_time and at
        order by i.delayed_until, i.seq limit most
        for update skip locked
    ) d;
    if rows is null then
        return 0;
    end if;
    pos := requeue.next_position();
    update requeue.item i set
        delayed_until = null,
        state = case i.state when 0 then 1 else i.state end,
        dirty = i.state = 2,
        since = case i.state when 0 then at else i.since end,
        seq = case i.state
            when 0 then requeue.make_seq(requeue.priority_of(i.seq), pos + r.n)
            else i.seq end
    from unnest(rows) with ordinality r (tid, n)
    where i.ctid = r.tid;
    perform requeue.record_counts(q, ready, -cardinality(rows), 0, dirty, 0, 0);
    return cardinality(rows);
end
$$;
