-- Makes the dead keys among `keys` ready, or all if it is null, the longest dead first.
--
-- Locks as `lock_dead`. Returns how many keys it revived.
create or replace function requeue.revive(q integer, keys bytea[], clock bigint)
returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    pos bigint := requeue.next_position();
    rows tid[] := requeue.lock_dead(q, keys);
begin
    update requeue.item i set
        state = 1,
        seq = pos + d.n,
        since = at,
        failures = 0,
        deliveries = 0,
        error = null,
        reason = null
    from unnest(rows) with ordinality d (tid, n)
    where i.ctid = d.tid;
    if cardinality(rows) > 0 then
        perform requeue.record_counts(
            q, cardinality(rows), 0, 0, 0, 0, -cardinality(rows));
    end if;
    return cardinality(rows);
end
$$;

-- Makes up to `most` keys ready that died no later than `until`, or than now if that is
-- null, the longest dead first.
--
-- Locks: the rows of these keys. Skips locked ones: an add that holds one revives it.
-- Returns how many keys it revived, and `until`.
create or replace function requeue.revive_some(
    q integer, most integer, clock bigint, inout until bigint, out revived bigint
)
language plpgsql volatile as $$
begin
    until := coalesce(until, requeue.now_micros(clock));
    revived := requeue.revive(q, requeue.longest_dead(q, most, until), clock);
end
$$;

-- Locks up to `most` keys that died no later than `until`, the longest dead first. Skips
-- locked ones. Returns the keys.
create or replace function requeue.longest_dead(q integer, most integer, until bigint)
returns bytea[]
language plpgsql volatile as $$
begin
    return array(
        select i.key from requeue.item i
        where i.queue = q and i.reason is not null and i.since <= until
        order by i.since limit most
        for update skip locked
    );
end
$$;
