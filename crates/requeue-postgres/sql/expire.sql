-- Returns when the first lease expires, null without leases.
--
-- Reads the leases of the first four batches. After those the time may be too early.
create or replace function requeue.next_expiry(q integer, from_time bigint)
returns bigint
language plpgsql volatile as $$
begin
    return min(case b.n when 5 then b.until else (
        select min(i.lease_until) from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq between b.first_seq and b.last_seq
            and i.state = 2 and i.token between b.first_token and b.last_token
    ) end)
    from (
        select *, row_number() over (order by until) as n
        from requeue.lease_batch where queue = q and until >= from_time
        order by until limit 5
    ) b;
end
$$;

-- Takes back up to 500 expired leases, the earliest first. Their keys become ready, or dead
-- after `max_deliveries` deliveries. `from_time` is as in `move_due`.
--
-- Locks: rows of `lease_batch`, then the rows of the keys. Skips locked ones. Returns how
-- many keys became ready and how many died.
create or replace function requeue.return_expired(
    q integer, max_deliveries integer, at bigint, from_time bigint,
    out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    batches tid[];
    rows tid[];
    pos bigint;
begin
    returned := 0;
    dead := 0;
    batches := array(
        select b.ctid from requeue.lease_batch b
        where b.queue = q and b.until between from_time and at
        order by b.until limit 500
        for update skip locked
    );
    if cardinality(batches) = 0 then
        return;
    end if;
    rows := array(
        select i.tid
        from unnest(batches) c (tid) join requeue.lease_batch b on b.ctid = c.tid
        cross join lateral (
            select j.ctid as tid, j.lease_until, j.key from requeue.item j
            where j.queue = q and j.since is not null and j.reason is null
                and j.seq between b.first_seq and b.last_seq
                and j.state = 2 and j.token between b.first_token and b.last_token
                and j.lease_until <= at
            offset 0 for update skip locked
        ) i
        order by i.lease_until, i.key limit 500
    );
    if cardinality(rows) > 0 then
        pos := requeue.next_position();
        with moved as (
            update requeue.item i set
                state = case when i.deliveries >= max_deliveries then 3 else 1 end,
                reason = case when i.deliveries >= max_deliveries then
                    format('its lease expired %s %s in a row', i.deliveries,
                        case i.deliveries when 1 then 'time' else 'times' end) end,
                delayed_until = case
                    when i.deliveries >= max_deliveries then null
                    else i.delayed_until end,
                dirty = false,
                lease_until = null,
                since = at,
                seq = requeue.make_seq(
                    greatest(requeue.priority_of(i.seq), i.pending_priority), pos + r.n),
                pending_priority = null
            from unnest(rows) with ordinality r (tid, n)
            where i.ctid = r.tid
            returning i.state
        )
        select count(*) filter (where state = 1), count(*) filter (where state = 3)
        into returned, dead
        from moved;
    end if;
    perform requeue.refresh_lease_batches(q, batches);
end
$$;

-- Deletes lease batches without leases, and moves the others to the time at which their
-- first lease expires. A lease that another transaction is finishing still counts.
--
-- The caller has locked the rows.
create or replace function requeue.refresh_lease_batches(q integer, batches tid[])
returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select b.ctid as tid, (
            select min(i.lease_until) from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null
                and i.seq between b.first_seq and b.last_seq
                and i.state = 2 and i.token between b.first_token and b.last_token
        ) as until
        from unnest(batches) c (tid) join requeue.lease_batch b on b.ctid = c.tid
    ), gone as (
        delete from requeue.lease_batch b using found f
        where b.ctid = f.tid and f.until is null
    )
    update requeue.lease_batch b set until = f.until
    from found f where b.ctid = f.tid and f.until > b.until;
end
$$;

-- Moves due keys, then expired leases, at most 500 of each.
--
-- Locks as `move_due` and `return_expired`. Returns how many keys became due, came back
-- from an expired lease, and died.
create or replace function requeue.expire(
    q integer, max_deliveries integer, clock bigint,
    out due bigint, out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    due := requeue.move_due(q, at, 0, 500);
    select l.returned, l.dead into returned, dead
    from requeue.return_expired(q, max_deliveries, at, 0) l;
end
$$;
