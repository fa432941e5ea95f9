-- Drops dead keys: how many. Without keys, all of them.
create or replace function requeue.drop_dead(q integer, keys bytea[]) returns bigint
language plpgsql volatile as $$
declare
    meant bytea[] := requeue.buried(q, keys);
begin
    delete from requeue.item i using unnest(meant) k (key)
    where i.queue = q and i.key = k.key;
    return cardinality(meant);
end
$$;
