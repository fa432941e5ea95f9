-- Makes up to `most` keys ready whose delay is over, in the order of their times: how many.
-- A key that is being processed becomes dirty instead.
--
-- `low` is a time below which there is nothing left, as far as the caller knows: it saves
-- the way over entries that are dead but not yet removed.
create or replace function requeue.move_due(q integer, at bigint, low bigint, most integer)
returns bigint
language plpgsql volatile as $$
declare
    rows tid[];
    place bigint;
begin
    rows := array(
        select i.ctid from requeue.item i
        where i.queue = q and i.wake_at between low and at
        order by i.wake_at, i.seq limit most
        for update skip locked
    );
    if cardinality(rows) = 0 then
        return 0;
    end if;
    place := requeue.places();
    update requeue.item i set
        wake_at = null,
        state = case i.state when 0 then 1 else i.state end,
        dirty = i.state = 2,
        since = case i.state when 0 then at else i.since end,
        seq = case i.state when 0 then requeue.ranked(place + r.n, requeue.rank(i.seq)) else i.seq end
    from unnest(rows) with ordinality r (tid, n)
    where i.ctid = r.tid;
    return cardinality(rows);
end
$$;
