-- Locks the leases of an owner that are not among the given ones, in key order. If a lock
-- takes too long, locks only those that are free. Returns their rows in token order.
create or replace function requeue.lock_unheld(
    q integer, who text, keys bytea[], tokens bigint[]
) returns tid[]
language plpgsql volatile as $$
begin
    return array_agg(l.tid order by l.token) from (
        select i.ctid as tid, i.token from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_leased_seq(q) and i.state = 2 and i.owner = who
            and (i.key, i.token) not in (select * from unnest(keys, tokens))
        order by i.key for update
    ) l;
exception when lock_not_available then
    return array_agg(l.tid order by l.token) from (
        select i.ctid as tid, i.token from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_leased_seq(q) and i.state = 2 and i.owner = who
            and (i.key, i.token) not in (select * from unnest(keys, tokens))
        order by i.key for update skip locked
    ) l;
end
$$;

-- Releases every lease of an owner that is not among the given ones. A key that stays
-- locked is skipped and its lease expires: the owner leases nothing while it waits for this.
--
-- Locks as `lock_unheld`. Returns how many leases it released.
create or replace function requeue.reclaim(
    q integer, who text, keys bytea[], tokens bigint[], clock bigint
) returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    pos bigint := requeue.next_position();
    unheld tid[] := requeue.lock_unheld(q, who, keys, tokens);
    dirty bigint;
begin
    if unheld is null then
        return 0;
    end if;
    select count(*) filter (where i.dirty) into dirty
    from unnest(unheld) l (tid) join requeue.item i on i.ctid = l.tid;
    update requeue.item i set
        state = 1,
        dirty = false,
        seq = requeue.make_seq(
            greatest(requeue.priority_of(i.seq), i.pending_priority), pos + l.n),
        pending_priority = null,
        since = at,
        lease_until = null,
        deliveries = i.deliveries - 1
    from unnest(unheld) with ordinality l (tid, n)
    where i.ctid = l.tid;
    perform requeue.record_counts(
        q, cardinality(unheld), 0, -cardinality(unheld), -dirty, 0, 0);
    return cardinality(unheld);
end
$$;
