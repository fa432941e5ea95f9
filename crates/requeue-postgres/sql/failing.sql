-- Tells of keys that have failed and are not dead, most failures first.
create or replace function requeue.failing(q integer, number bigint, clock bigint)
returns table (key bytea, failures integer, error text, retry_in bigint)
language sql volatile as $$
    select i.key, i.failures, coalesce(i.error, ''), i.wake_at - c.at
    from requeue.micros(clock) c (at), requeue.item i
    where i.queue = q and i.failures > 0 and i.reason is null
    order by i.failures desc, i.key limit number
$$;
