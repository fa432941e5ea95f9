-- Deletes the dead keys among `keys`, or all if it is null.
--
-- Locks as `lock_dead`. Returns how many keys it deleted.
create or replace function requeue.drop_dead(q integer, keys bytea[]) returns bigint
language plpgsql volatile as $$
declare
    rows tid[] := requeue.lock_dead(q, keys);
begin
    delete from requeue.item i using unnest(rows) d (tid) where i.ctid = d.tid;
    if cardinality(rows) > 0 then
        perform requeue.record_counts(q, 0, 0, 0, 0, 0, -cardinality(rows));
    end if;
    return cardinality(rows);
end
$$;
