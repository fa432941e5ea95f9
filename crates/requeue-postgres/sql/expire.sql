-- Moves what is due: first delays that are over, then leases that have run out.
create or replace function requeue.expire(
    q integer, max_deliveries integer, clock bigint,
    low_delay bigint default 0, low_lease bigint default 0,
    out due bigint, out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    rows tid[];
    place bigint;
begin
    due := requeue.move_due(q, at, low_delay);
    returned := 0;
    dead := 0;
    rows := array(
        select i.ctid from requeue.item i
        where i.queue = q and i.state = 2 and i.lease_until between low_lease and at
        order by i.lease_until, i.key limit 500
        for update skip locked
    );
    if cardinality(rows) = 0 then
        return;
    end if;
    place := requeue.places();
    with moved as (
        update requeue.item i set
            state = case when i.deliveries >= max_deliveries then 3 else 1 end,
            reason = case when i.deliveries >= max_deliveries then
                format('its lease ran out %s %s in a row', i.deliveries,
                    case i.deliveries when 1 then 'time' else 'times' end) end,
            wake_at = case when i.deliveries >= max_deliveries then null else i.wake_at end,
            dirty = false,
            lease_until = null,
            since = at,
            seq = place + r.n
        from unnest(rows) with ordinality r (tid, n)
        where i.ctid = r.tid
        returning i.state
    )
    select count(*) filter (where state = 1), count(*) filter (where state = 3)
    into returned, dead
    from moved;
end
$$;
