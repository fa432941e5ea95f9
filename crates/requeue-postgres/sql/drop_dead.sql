-- Drops dead keys: how many. Without keys, all of them.
create or replace function requeue.drop_dead(q integer, keys bytea[]) returns bigint
language plpgsql volatile as $$
declare
    meant tid[] := requeue.buried(q, keys);
begin
    delete from requeue.item i using unnest(meant) d (tid) where i.ctid = d.tid;
    return cardinality(meant);
end
$$;
