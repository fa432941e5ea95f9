-- The first time at which a lease runs out, if there is one.
--
-- It looks into the first four grants; what comes after those may be said too early.
create or replace function requeue.next_expiry(q integer, low bigint) returns bigint
language plpgsql volatile as $$
begin
    return min(case g.n when 5 then g.until else (
        select min(i.lease_until) from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq between g.first_place and g.last_place
            and i.state = 2 and i.token between g.first_token and g.last_token
    ) end)
    from (
        select *, row_number() over (order by until) as n
        from requeue.grants where queue = q and until >= low
        order by until limit 5
    ) g;
end
$$;

-- Takes back leases that have run out. `low` is a time below which there are none left, as
-- far as the caller knows.
create or replace function requeue.move_lapsed(
    q integer, max_deliveries integer, at bigint, low bigint,
    out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    calls tid[];
    rows tid[];
    place bigint;
begin
    returned := 0;
    dead := 0;
    calls := array(
        select g.ctid from requeue.grants g
        where g.queue = q and g.until between low and at
        order by g.until limit 500
        for update skip locked
    );
    if cardinality(calls) = 0 then
        return;
    end if;
    rows := array(
        select i.tid
        from unnest(calls) c (tid) join requeue.grants g on g.ctid = c.tid
        cross join lateral (
            select j.ctid as tid, j.lease_until, j.key from requeue.item j
            where j.queue = q and j.since is not null and j.reason is null
                and j.seq between g.first_place and g.last_place
                and j.state = 2 and j.token between g.first_token and g.last_token
                and j.lease_until <= at
            offset 0 for update skip locked
        ) i
        order by i.lease_until, i.key limit 500
    );
    if cardinality(rows) > 0 then
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
                seq = requeue.ranked(place + r.n, least(requeue.rank(i.seq), i.planned)),
                planned = null
            from unnest(rows) with ordinality r (tid, n)
            where i.ctid = r.tid
            returning i.state
        )
        select count(*) filter (where state = 1), count(*) filter (where state = 3)
        into returned, dead
        from moved;
    end if;
    perform requeue.tidy_grants(q, calls);
end
$$;

-- Deletes grants of which no lease is left, and puts the others off until the first of
-- their leases runs out. A lease that somebody is just ending counts as left.
create or replace function requeue.tidy_grants(q integer, calls tid[]) returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select g.ctid as tid, (
            select min(i.lease_until) from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null
                and i.seq between g.first_place and g.last_place
                and i.state = 2 and i.token between g.first_token and g.last_token
        ) as until
        from unnest(calls) c (tid) join requeue.grants g on g.ctid = c.tid
    ), gone as (
        delete from requeue.grants g using found f where g.ctid = f.tid and f.until is null
    )
    update requeue.grants g set until = f.until
    from found f where g.ctid = f.tid and f.until > g.until;
end
$$;

-- Moves what is due: first delays that are over, then leases that have run out.
create or replace function requeue.expire(
    q integer, max_deliveries integer, clock bigint,
    out due bigint, out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
begin
    due := requeue.move_due(q, at, 0, 500);
    select l.returned, l.dead into returned, dead
    from requeue.move_lapsed(q, max_deliveries, at, 0) l;
end
$$;
