-- Helpers of the other files.
--
-- Planning. A queue fills and empties faster than the server updates its statistics, so the
-- statements leave the planner no choice. Rows are looked up by key in a lateral subquery
-- with `offset 0`, which keeps the planner from scanning the table once per key. Locked rows
-- are changed by their address (`ctid`). `state + 0` keeps a condition from matching a
-- partial index. Arrays are expanded in a select list where speed matters: `unnest` in a
-- `from` clause costs as much as reading a row.
--
-- Lock order. Rows of keys come first, in key order; then the priorities of the queue
-- (`mark_priorities`), the row of the queue, and the row of an owner. A lease takes them in
-- another order, but skips locked keys and waits only for its owner's row.

-- Returns the time in microseconds: `clock` if a test sets it, otherwise the server's. It
-- is not `now()`, which does not advance within a transaction.
create or replace function requeue.now_micros(clock bigint) returns bigint
language sql volatile parallel safe as $$
    select coalesce(clock, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- Reserves 4096 positions behind all others. Returns the first.
create or replace function requeue.next_position() returns bigint
language sql volatile as $$
    select nextval('requeue.position') << 12
$$;

-- Returns the priority in a `seq`.
create or replace function requeue.priority_of(seq bigint) returns smallint
language sql immutable parallel safe as $$
    select (-(seq >> 55))::smallint
$$;

-- Returns whether the priority in a `seq`, or in several combined with `|`, is not 0.
create or replace function requeue.has_priority(seq bigint) returns boolean
language sql immutable parallel safe as $$
    select seq >> 55 <> 0
$$;

-- Returns the position in a `seq`.
create or replace function requeue.position_of(seq bigint) returns bigint
language sql immutable parallel safe as $$
    select seq & ((1::bigint << 55) - 1)
$$;

-- Returns the `seq` of a priority and a position.
create or replace function requeue.make_seq(priority integer, pos bigint) returns bigint
language sql immutable parallel safe as $$
    select requeue.position_of(pos) | (-priority::bigint << 55)
$$;

-- Returns the first of `n` new tokens. All are greater than every token before, and at
-- least the time `at`.
--
-- Locks: an advisory lock around the two steps on the sequence, released at once. Held until
-- the commit, it would serialize all leases. The lock belongs to the connection, which may
-- belong to a pooler, so a call that is interrupted in between has to release it too.
create or replace function requeue.next_tokens(n integer, at bigint) returns bigint
language plpgsql volatile as $$
declare
    sequence regclass := 'requeue.token';
    locked boolean := false;
    first bigint;
begin
    locked := pg_advisory_lock(sequence::integer, 1) is not null;
    first := greatest(pg_sequence_last_value(sequence) + 1, at);
    perform setval(sequence, first + n - 1);
    perform pg_advisory_unlock(sequence::integer, 1);
    return first;
exception when query_canceled or others then
    if locked then
        perform pg_advisory_unlock(sequence::integer, 1);
    end if;
    raise;
end
$$;

-- Returns a `seq` behind which no key is processing.
create or replace function requeue.last_leased_seq(q integer) returns bigint
language sql stable as $$
    select coalesce(max(b.last_seq), 0) from requeue.lease_batch b where b.queue = q
$$;

-- Locks the rows of keys, in the given order.
create or replace function requeue.lock_keys(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    perform from unnest(keys) a (key) cross join lateral (
        select i.key from requeue.item i
        where i.queue = q and i.key = a.key offset 0 for update
    ) i;
end
$$;

-- Deletes the rows of keys that are idle, not delayed and have no failures. The caller has
-- locked them.
create or replace function requeue.delete_empty(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select i.tid from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    )
    delete from requeue.item i using found f
    where i.ctid = f.tid and i.state + 0 = 0 and i.delayed_until is null
        and i.failures + 0 = 0;
end
$$;

-- Records that an owner is alive, at most once a second. Forgets owners after two days.
--
-- Locks: the row of the owner.
create or replace function requeue.record_owner(q integer, who text, at bigint)
returns void
language plpgsql volatile as $$
begin
    if exists (
        select from requeue.owner o
        where o.queue = q and o.name = who and o.seen between at - 999999 and at
    ) then
        return;
    end if;
    insert into requeue.owner values (q, who, at)
    on conflict (queue, name) do update set seen = excluded.seen;
    delete from requeue.owner o where o.queue = q and o.seen < at - 2 * 86400000000;
end
$$;

-- Returns the id of a queue, and creates the queue if it does not exist.
create or replace function requeue.queue_id(queue_name text) returns integer
language plpgsql volatile as $$
declare
    q integer;
begin
    loop
        select id into q from requeue.queue where name = queue_name;
        if found then
            return q;
        end if;
        insert into requeue.queue (name) values (queue_name) on conflict do nothing;
    end loop;
end
$$;

-- Reserves `n` events of the rate that the queue shares. Returns the delay of the first,
-- negative or 0 for no delay; each further event waits `pause` longer. Uses numeric, because
-- an hour for each event of a burst of four billion exceeds a bigint.
--
-- If the clock was set back since the arrival time was computed, that moves back as well. So
-- the clock is read again under the lock: a call that waited for it would otherwise take the
-- arrival time of a faster call for one from a wrong clock. The delay counts from `at`, the
-- start of the call.
--
-- Locks: the row of the queue.
create or replace function requeue.reserve_rate(
    q integer, n bigint, pause bigint, burst bigint, at bigint, clock bigint
) returns bigint
language plpgsql volatile as $$
declare
    locked_at bigint;
    reserved bigint;
begin
    perform from requeue.queue where id = q for update;
    locked_at := requeue.now_micros(clock);
    update requeue.queue
    set arrival = least(
            greatest(arrival - greatest(arrival_at - locked_at, 0), locked_at)
                + n::numeric * pause,
            1::bigint << 62),
        arrival_at = locked_at
    where id = q
    returning greatest(
        arrival - (n - 1)::numeric * pause - at - burst::numeric * pause,
        -(1::bigint << 62))::bigint
    into reserved;
    return reserved;
end
$$;

-- Returns `base` doubled `failures` times, at most `longest`.
create or replace function requeue.backoff_delay(
    base bigint, longest bigint, failures integer
) returns bigint
language sql immutable parallel safe as $$
    select case
        when base = 0 or longest = 0 then 0
        when failures >= 63 or base > (longest >> least(failures, 62)) then longest
        else base << failures
    end
$$;
