-- Forgets the failures of keys that are not dead. The keys are sorted.
create or replace function requeue.forget(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    perform from unnest(keys) a (key)
    join requeue.item i on i.queue = q and i.key = a.key
    order by a.key for update of i;

    update requeue.item i set failures = 0, error = null
    from unnest(keys) a (key)
    where i.queue = q and i.key = a.key and i.state <> 3 and i.failures > 0;
    perform requeue.tidy(q, keys);
end
$$;
