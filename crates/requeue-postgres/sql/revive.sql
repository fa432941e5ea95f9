-- Makes dead keys ready, the longest dead first: how many. Without keys, all of them.
create or replace function requeue.revive(q integer, keys bytea[], clock bigint)
returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
    meant bytea[] := requeue.buried(q, keys);
begin
    update requeue.item i set
        state = 1,
        seq = place + d.n,
        since = at,
        failures = 0,
        deliveries = 0,
        error = null,
        reason = null
    from (
        select j.key, row_number() over (order by j.since, j.key) as n
        from unnest(meant) k (key) join requeue.item j on j.queue = q and j.key = k.key
    ) d
    where i.queue = q and i.key = d.key;
    return cardinality(meant);
end
$$;
