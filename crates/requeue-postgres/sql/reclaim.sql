-- Releases every lease of an owner that is not among those that it holds: how many.
create or replace function requeue.reclaim(
    q integer, who text, keys bytea[], tokens bigint[], clock bigint
) returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
    lost bytea[];
begin
    lost := array(
        select i.key from requeue.item i
        where i.queue = q and i.state = 2 and i.owner = who
            and (i.key, i.token) not in (select * from unnest(keys, tokens))
        order by i.key for update
    );
    update requeue.item i set
        state = 1,
        dirty = false,
        seq = place + l.n,
        since = at,
        lease_until = null,
        deliveries = i.deliveries - 1
    from (
        select j.key, row_number() over (order by j.token) as n
        from unnest(lost) k (key) join requeue.item j on j.queue = q and j.key = k.key
    ) l
    where i.queue = q and i.key = l.key;
    return cardinality(lost);
end
$$;
