-- Takes `n` tokens of a limiter if they are available within `max_wait`. `pause` is the time
-- between two tokens. Uses numeric, because a long pause times many tokens exceeds a bigint.
--
-- If the clock was set back since the arrival time was computed, that moves back as well. So
-- the clock is read under the lock: a call that waited for it would otherwise take the arrival
-- time of a faster call for one from a wrong clock.
--
-- Locks: the row of the limiter. The commit does not wait for the disk: a crash may allow
-- the last events once more.
--
-- Returns whether the tokens were taken, and when they are available.
create or replace function requeue.take(
    q integer, limiter text, pause bigint, burst bigint, n bigint, max_wait bigint,
    clock bigint, out granted boolean, out wait bigint
)
language plpgsql volatile as $$
declare
    at bigint;
    last requeue.limiter;
    ahead numeric;
begin
    perform set_config('synchronous_commit', 'off', true);
    loop
        select l.* into last
        from requeue.limiter l where l.queue = q and l.name = limiter for update;
        exit when found;
        insert into requeue.limiter values (q, limiter, 0, 0) on conflict do nothing;
    end loop;
    at := requeue.now_micros(clock);
    ahead := greatest(last.arrival - greatest(last.arrival_at - at, 0) - at, 0);
    wait := least(greatest(ahead + (n - burst)::numeric * pause, 0), 1::bigint << 62);
    granted := wait <= max_wait;
    if granted then
        update requeue.limiter l
        set arrival = least(at + ahead + n::numeric * pause, 1::bigint << 62),
            arrival_at = at
        where l.queue = q and l.name = limiter;
    end if;
end
$$;
