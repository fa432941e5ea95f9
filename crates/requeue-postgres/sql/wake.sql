-- Records that a worker found no key, at most twice a second. The first call in a minute
-- also checks whether the queue still has priorities.
--
-- Returns whether adds did not know of a waiting worker until now. A key that was added
-- since the worker looked sent no notification, so the worker has to look once more.
--
-- Locks: the row of the queue. Skips it if it is locked. The commit does not wait for the
-- disk: nothing is lost if this is.
create or replace function requeue.record_idle(q integer, at bigint) returns boolean
language plpgsql volatile as $$
declare
    before bigint;
    has_priorities boolean;
begin
    select u.idle_at, u.has_priorities into before, has_priorities
    from requeue.queue u where u.id = q;
    if before between at - 500000 and at then
        return false;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    update requeue.queue u set idle_at = at
    from (select ctid as tid from requeue.queue where id = q for update skip locked) f
    where u.ctid = f.tid;
    if has_priorities and before / 60000000 <> at / 60000000 then
        perform requeue.unmark_priorities(q);
    end if;
    return before not between at - 2000000 and at;
end
$$;

-- Notifies waiting workers, unless no worker has found the queue empty in the last two
-- seconds: a waiting worker looks about once a second. Returns whether it notified.
--
-- Runs after the commit of an add, not within: a worker that looked before the commit would
-- miss the key, and the commit of a notification takes a lock of the whole database. Takes
-- no other lock. The commit does not wait for the disk: nothing is lost if this is.
create or replace function requeue.notify_workers(q integer, clock bigint) returns boolean
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    if not exists (
        select from requeue.queue u where u.id = q and u.idle_at between at - 2000000 and at
    ) then
        return false;
    end if;
    return set_config('synchronous_commit', 'off', true) = 'off'
        and pg_notify('requeue.' || q, '') is not null;
end
$$;

-- Notifies waiting workers of a queue, for any language: `select requeue.wake('mail')`
-- after the commit of an add. Returns whether it notified.
create or replace function requeue.wake(queue text) returns boolean
language sql volatile as $$
    select requeue.notify_workers(requeue.queue_id(queue), null)
$$;

-- Adds keys as `add_keys` does, commits, and notifies workers, in one round trip.
-- `notified` says whether it did.
--
-- Waits for the lock of a notification without a timeout: an error would say that nothing
-- was added.
create or replace procedure requeue.add_and_wake(
    q integer, keys bytea[], seqs bigint[], has_priorities boolean, delays bigint[],
    revive_after bigint, clock bigint, expect_new boolean,
    inout changed bytea[], inout states smallint[], inout waits bigint[],
    inout all_new boolean, inout notified boolean
)
language plpgsql as $$
begin
    select k.* into changed, states, waits, all_new
    from requeue.add_keys(
        q, keys, seqs, has_priorities, delays, revive_after, clock, expect_new) k;
    notified := false;
    if all_new or changed is not null then
        commit;
        notified := requeue.notify_workers(q, clock)
            and set_config('lock_timeout', '0', true) = '0';
    end if;
end
$$;
