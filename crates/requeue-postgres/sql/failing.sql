-- Returns up to `most` keys that have failed and are not dead, most failures first. Takes
-- no locks.
create or replace function requeue.failing(q integer, most bigint, clock bigint)
returns table (key bytea, failures integer, error text, retry_in bigint)
language sql volatile as $$
    select i.key, i.failures, coalesce(i.error, ''), i.delayed_until - c.at
    from requeue.now_micros(clock) c (at), requeue.item i
    where i.queue = q and i.failures > 0 and i.reason is null
    order by i.failures desc limit most
$$;
