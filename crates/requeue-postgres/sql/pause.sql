-- Pauses or resumes a queue.
--
-- Locks: the row of the queue.
create or replace function requeue.set_paused(q integer, value boolean) returns void
language sql volatile as $$
    update requeue.queue set paused = value where id = q and paused <> value
$$;
