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
