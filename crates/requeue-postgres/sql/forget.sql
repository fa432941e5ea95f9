-- Forgets the failures of keys that are not dead. The keys are sorted.
--
-- Locks: the rows of the keys, in key order.
create or replace function requeue.forget(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
declare
    forgotten bigint;
begin
    perform requeue.lock_keys(q, keys);
    with found as materialized (
        select i.tid from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    )
    update requeue.item i set failures = 0, error = null
    from found f
    where i.ctid = f.tid and i.state + 0 <> 3 and i.failures + 0 > 0;
    get diagnostics forgotten = row_count;
    if forgotten > 0 then
        perform requeue.record_counts(q, 0, 0, 0, 0, -forgotten, 0);
    end if;
    perform requeue.delete_empty(q, keys);
end
$$;
