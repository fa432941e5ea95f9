-- Hands out, or does not.
create or replace function requeue.set_paused(q integer, stop boolean) returns void
language sql volatile as $$
    update requeue.queue set paused = stop where id = q and paused <> stop
$$;
