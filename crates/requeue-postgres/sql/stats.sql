-- Tells how a queue stands, once delays that are over were moved.
create or replace function requeue.stats(
    q integer, clock bigint,
    out ready bigint, out delayed bigint, out processing bigint, out dirty bigint,
    out failing bigint, out dead bigint, out oldest_ready bigint, out paused boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
begin
    perform requeue.move_due(q, at, 0, 500);
    select
        count(*) filter (where i.state = 1),
        count(*) filter (where i.state = 2),
        count(*) filter (where i.state = 2 and i.dirty)
    into ready, processing, dirty
    from requeue.item i
    where i.queue = q and i.since is not null and i.reason is null;
    select
        (select count(*) from requeue.item i where i.queue = q and i.wake_at is not null),
        (select count(*) from requeue.item i
            where i.queue = q and i.failures > 0 and i.reason is null),
        (select count(*) from requeue.item i where i.queue = q and i.reason is not null),
        (select greatest(0, at - i.since) from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null and i.state = 1
            order by i.seq limit 1),
        (select u.paused from requeue.queue u where u.id = q)
    into delayed, failing, dead, oldest_ready, paused;
end
$$;
