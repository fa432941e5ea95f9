-- Where the leases of an owner are that it does not hold, in the order of their tokens;
-- locked in that of their keys.
create or replace function requeue.unheld(
    q integer, who text, keys bytea[], tokens bigint[]
) returns tid[]
language plpgsql volatile as $$
begin
    return array_agg(l.tid order by l.token) from (
        select i.ctid as tid, i.token from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_granted(q) and i.state = 2 and i.owner = who
            and (i.key, i.token) not in (select * from unnest(keys, tokens))
        order by i.key for update
    ) l;
exception when lock_not_available then
    return array_agg(l.tid order by l.token) from (
        select i.ctid as tid, i.token from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_granted(q) and i.state = 2 and i.owner = who
            and (i.key, i.token) not in (select * from unnest(keys, tokens))
        order by i.key for update skip locked
    ) l;
end
$$;

-- Releases every lease of an owner that is not among those that it holds: how many. One whose
-- key somebody has for long is left to run out: the owner leases nothing while it waits for
-- this.
create or replace function requeue.reclaim(
    q integer, who text, keys bytea[], tokens bigint[], clock bigint
) returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
    lost tid[] := requeue.unheld(q, who, keys, tokens);
begin
    update requeue.item i set
        state = 1,
        dirty = false,
        seq = requeue.ranked(place + l.n, least(requeue.rank(i.seq), i.planned)),
        planned = null,
        since = at,
        lease_until = null,
        deliveries = i.deliveries - 1
    from unnest(lost) with ordinality l (tid, n)
    where i.ctid = l.tid;
    return coalesce(cardinality(lost), 0);
end
$$;
