-- Wakes workers that wait for a key, and answers whether it did. It does not if a key has
-- been ready for so long that a worker without work would have found it: then all are
-- busy.
--
-- It is a statement of its own after an add, and not part of it: a notification takes a
-- lock at the commit that the whole database shares.
create or replace function requeue.wake(q integer, patience bigint, clock bigint)
returns boolean
language plpgsql volatile as $$
begin
    if exists (
        select from (
            select i.since from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null and i.state = 1
            order by i.seq limit 1
        ) first
        where first.since < requeue.micros(clock) - patience
    ) then
        return false;
    end if;
    -- Nobody loses anything if this is not on disk.
    perform set_config('synchronous_commit', 'off', true);
    perform pg_notify('requeue.' || q, '');
    return true;
end
$$;

-- The same for any language: `select requeue.wake('mail')`, after the commit of an add.
create or replace function requeue.wake(queue text) returns boolean
language sql volatile as $$
    select requeue.wake(requeue.queue_id(queue), 2000000, null)
$$;
