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

-- Deletes up to `most` keys that died no later than `until`, or than now if that is null.
--
-- Locks as `revive_some`. Returns how many keys it deleted, and `until`.
create or replace function requeue.drop_dead_some(
    q integer, most integer, clock bigint, inout until bigint, out dropped bigint
)
language plpgsql volatile as $$
begin
    until := coalesce(until, requeue.now_micros(clock));
    dropped := requeue.drop_dead(q, requeue.longest_dead(q, most, until));
end
$$;
