-- Notes that a worker found nothing to do; to half a second, so that it costs no write each
-- time. Answers whether adds did not know that somebody waits: a key that was added since
-- the worker looked then wakes nobody, and it has to look once more.
--
-- The first in a minute looks whether the queue can do without ranks again.
--
-- Nobody loses anything if this is not on disk.
create or replace function requeue.note_idle(q integer, at bigint) returns boolean
language plpgsql volatile as $$
declare
    before bigint;
    ranked boolean;
begin
    select u.idle_at, u.ranked into before, ranked from requeue.queue u where u.id = q;
    if before between at - 500000 and at then
        return false;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    update requeue.queue u set idle_at = at
    from (select ctid as tid from requeue.queue where id = q for update skip locked) f
    where u.ctid = f.tid;
    if ranked and before / 60000000 <> at / 60000000 then
        perform requeue.note_unranked(q);
    end if;
    return before not between at - 2000000 and at;
end
$$;

-- Wakes workers that wait for a key, and answers whether it did. It does not if none has
-- looked in vain for so long that, if there were one that waits, it would have: a worker
-- that waits looks about once in a second.
--
-- It comes after the commit of an add, and not before: a notification takes a lock at the
-- commit that the whole database shares, and a worker that looked before would not be seen.
create or replace function requeue.wake(q integer, clock bigint) returns boolean
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
begin
    if not exists (
        select from requeue.queue u where u.id = q and u.idle_at between at - 2000000 and at
    ) then
        return false;
    end if;
    -- Nobody loses anything if this is not on disk.
    return set_config('synchronous_commit', 'off', true) = 'off'
        and pg_notify('requeue.' || q, '') is not null;
end
$$;

-- The same for any language: `select requeue.wake('mail')`, after the commit of an add.
create or replace function requeue.wake(queue text) returns boolean
language sql volatile as $$
    select requeue.wake(requeue.queue_id(queue), null)
$$;

-- Adds keys as `add_keys` does, commits, and wakes workers: in one round trip. `notified`
-- says whether it did. The lock of a notification is waited for without a timeout: an error
-- would say that nothing was added.
create or replace procedure requeue.add_waking(
    q integer, keys bytea[], ords bigint[], ranked boolean, delays bigint[],
    revive_after bigint, clock bigint, expect_new boolean,
    inout changed bytea[], inout states smallint[], inout waits bigint[],
    inout all_new boolean, inout notified boolean
)
language plpgsql as $$
begin
    select k.* into changed, states, waits, all_new
    from requeue.add_keys(
        q, keys, ords, ranked, delays, revive_after, clock, expect_new) k;
    notified := false;
    if all_new or changed is not null then
        commit;
        notified := requeue.wake(q, clock) and set_config('lock_timeout', '0', true) = '0';
    end if;
end
$$;
