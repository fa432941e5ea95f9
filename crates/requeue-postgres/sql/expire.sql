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
-- after `max_deliveries` deliveries. If such a key is dirty, the add revives it instead: it
-- is delayed by 1000 s, the longest delay of the default backoff. `from_time` is as in
-- `move_due`.
--
-- Locks: rows of `lease_batch`, then the rows of the keys. Skips locked ones. Returns how
-- many keys became ready or were revived, and how many died.
create or replace function requeue.return_expired(
    q integer, max_deliveries integer, at bigint, from_time bigint,
    out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    batches tid[];
    rows tid[];
    pos bigint;
    counts record;
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
                state = case o.fate when 'dead' then 3 when 'revived' then 0 else 1 end,
                reason = case o.fate when 'dead' then
                    format('its lease expired %s %s in a row', i.deliveries,
                        case i.deliveries when 1 then 'time' else 'times' end) end,
                delayed_until = case o.fate
                    when 'dead' then null
                    when 'revived' then at + 1000000000
                    else i.delayed_until end,
                dirty = false,
                lease_until = null,
                since = case o.fate when 'revived' then null else at end,
                failures = case o.fate when 'revived' then 0 else i.failures end,
                deliveries = case o.fate when 'revived' then 0 else i.deliveries end,
                error = case o.fate when 'revived' then null else i.error end,
                seq = requeue.make_seq(case o.fate
                    when 'revived' then coalesce(i.pending_priority, requeue.priority_of(i.seq))
                    else greatest(requeue.priority_of(i.seq), i.pending_priority) end,
                    pos + o.n),
                pending_priority = null
            from (
                select r.tid, r.n, j.dirty, j.delayed_until, j.failures, case
                        when j.deliveries >= max_deliveries and j.dirty then 'revived'
                        when j.deliveries >= max_deliveries then 'dead'
                        else 'ready' end as fate
                from unnest(rows) with ordinality r (tid, n)
                join requeue.item j on j.ctid = r.tid
            ) o
            where i.ctid = o.tid
            returning i.state,
                (i.delayed_until is not null)::integer
                    - (o.delayed_until is not null)::integer as delayed,
                o.dirty::integer as dirty,
                (i.failures > 0 and i.state <> 3)::integer - (o.failures > 0)::integer
                    as failing
        )
        select count(*) as total, count(*) filter (where m.state = 1) as ready,
            count(*) filter (where m.state = 3) as dead, sum(m.delayed) as delayed,
            sum(m.dirty) as dirty, sum(m.failing) as failing
        into counts
        from moved m;
        dead := counts.dead;
        returned := counts.total - dead;
        perform requeue.record_counts(
            q, counts.ready, counts.delayed, -counts.total, -counts.dirty, counts.failing, dead);
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
