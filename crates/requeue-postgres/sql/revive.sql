-- Makes dead keys ready, the longest dead first: how many. Without keys, all of them.
create or replace function requeue.revive(q integer, keys bytea[], clock bigint)
returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
    meant tid[] := requeue.buried(q, keys);
begin
    update requeue.item i set
        state = 1,
        seq = place + d.n,
        since = at,
        failures = 0,
        deliveries = 0,
        error = null,
        reason = null
    from unnest(meant) with ordinality d (tid, n)
    where i.ctid = d.tid;
    return cardinality(meant);
end
$$;
