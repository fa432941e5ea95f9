-- Moves due keys, unless this user may only read, then returns the state of a queue. Locks
-- as `move_due`. The cost does not depend on the number of keys.
create or replace function requeue.stats(
    q integer, clock bigint,
    out ready bigint, out delayed bigint, out processing bigint, out dirty bigint,
    out failing bigint, out dead bigint, out oldest_ready bigint, out paused boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    has_priorities boolean;
begin
    if requeue.may_write() then
        perform requeue.move_due(q, at, 0, 500);
    end if;
    select coalesce(sum(c.ready), 0), coalesce(sum(c.delayed), 0),
        coalesce(sum(c.processing), 0), coalesce(sum(c.dirty), 0),
        coalesce(sum(c.failing), 0), coalesce(sum(c.dead), 0)
    into ready, delayed, processing, dirty, failing, dead
    from requeue.count_change c where c.queue = q;
    select u.paused, u.has_priorities into paused, has_priorities
    from requeue.queue u where u.id = q;
    if ready > 0 then
        oldest_ready := greatest(0, at - requeue.ready_since(q, has_priorities));
    end if;
end
$$;

-- Returns the earliest time at which the first ready key of a priority became ready. Null if
-- no key is ready.
create or replace function requeue.ready_since(q integer, has_priorities boolean)
returns bigint
language plpgsql stable as $$
declare
    head record;
    earliest bigint;
    next_seq bigint := case when has_priorities then -1::bigint << 63 else 0 end;
begin
    loop
        select i.seq, i.since into head from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.state = 1 and i.seq >= next_seq
        order by i.seq limit 1;
        if not found then
            return earliest;
        end if;
        earliest := least(earliest, head.since);
        if not has_priorities or head.seq >> 55 = 255 then
            return earliest;
        end if;
        next_seq := (head.seq >> 55) + 1 << 55;
    end loop;
end
$$;
