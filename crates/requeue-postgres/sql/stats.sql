-- Moves due keys, then returns the state of a queue. Locks as `move_due`.
create or replace function requeue.stats(
    q integer, clock bigint,
    out ready bigint, out delayed bigint, out processing bigint, out dirty bigint,
    out failing bigint, out dead bigint, out oldest_ready bigint, out paused boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    perform requeue.move_due(q, at, 0, 500);
    select
        count(*) filter (where i.state = 1),
        count(*) filter (where i.state = 2),
        count(*) filter (where i.state = 2 and i.dirty),
        max(greatest(0, at - i.since)) filter (where i.state = 1)
    into ready, processing, dirty, oldest_ready
    from requeue.item i
    where i.queue = q and i.since is not null and i.reason is null;
    select
        (select count(*) from requeue.item i
            where i.queue = q and i.delayed_until is not null),
        (select count(*) from requeue.item i
            where i.queue = q and i.failures > 0 and i.reason is null),
        (select count(*) from requeue.item i where i.queue = q and i.reason is not null),
        (select u.paused from requeue.queue u where u.id = q)
    into delayed, failing, dead, paused;
end
$$;
