-- What the verbs share.

-- The time in microseconds: what the caller says, which only tests do, or what it is. It
-- is not `now()`, which stands still in a transaction.
create or replace function requeue.micros(told bigint) returns bigint
language sql volatile parallel safe as $$
    select coalesce(told, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- The first of 4096 places at the end of the line.
create or replace function requeue.places() returns bigint
language sql volatile as $$
    select nextval('requeue.line') << 12
$$;

-- The rank of a place in line: its priority times -1.
create or replace function requeue.rank(seq bigint) returns bigint
language sql immutable parallel safe as $$
    select seq >> 55
$$;

-- A place in line, with rank 0.
create or replace function requeue.unranked(seq bigint) returns bigint
language sql immutable parallel safe as $$
    select seq & ((1::bigint << 55) - 1)
$$;

-- A place in line, with another rank.
create or replace function requeue.ranked(seq bigint, rank bigint) returns bigint
language sql immutable parallel safe as $$
    select requeue.unranked(seq) | (rank << 55)
$$;

-- The first of `n` new tokens: none was granted before, and none is below the time.
--
-- The lock makes two steps on the sequence one. It is given back at once and not with the
-- end of the transaction, so that nobody waits for another's commit; who is interrupted
-- in between closes the connection.
create or replace function requeue.tokens(n integer, at bigint) returns bigint
language plpgsql volatile as $$
declare
    sequence regclass := 'requeue.token';
    locked boolean := pg_advisory_lock(sequence::integer, 1) is not null;
    first bigint := greatest(pg_sequence_last_value(sequence) + 1, at);
    last bigint := setval(sequence, first + n - 1);
    unlocked boolean := pg_advisory_unlock(sequence::integer, 1);
begin
    return first;
end
$$;

-- A place in line behind which no key is being processed.
create or replace function requeue.last_granted(q integer) returns bigint
language sql stable as $$
    select coalesce(max(g.last_place), 0) from requeue.grants g where g.queue = q
$$;

-- Locks the rows of keys, in the order in which they are given.
--
-- Here and wherever keys are looked up, `offset 0` keeps the planner from turning the join
-- round: it knows little of a table that fills and empties, and would go over all of it
-- for each key. For the same reason what is found is changed by its address, and states
-- are compared where no partial index can be meant (`state + 0`).
create or replace function requeue.lock_keys(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    perform from unnest(keys) a (key) cross join lateral (
        select i.key from requeue.item i
        where i.queue = q and i.key = a.key offset 0 for update
    ) i;
end
$$;

-- Deletes the rows of keys that say nothing any more.
create or replace function requeue.tidy(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select i.tid from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    )
    delete from requeue.item i using found f
    where i.ctid = f.tid and i.state + 0 = 0 and i.wake_at is null and i.failures + 0 = 0;
end
$$;

-- Notes that an owner is there: to the second, so that it costs no write each time.
create or replace function requeue.hear_of(q integer, who text, at bigint) returns void
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

-- The number of a queue, which is made if it is not there.
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

-- The times that `n` events of the shared rate are told to wait, the first of them; each
-- further one waits an interval longer. It may be negative: then there is no wait. An hour
-- for each of a burst of four billion is more than a bigint holds, hence numeric.
create or replace function requeue.reserve(
    q integer, n bigint, pause bigint, burst bigint, at bigint
) returns bigint
language sql volatile as $$
    update requeue.queue
    set arrival = least(greatest(arrival, at) + n::numeric * pause, 1::bigint << 62)
    where id = q
    returning greatest(
        arrival - (n - 1)::numeric * pause - at - burst::numeric * pause,
        -(1::bigint << 62))::bigint
$$;

-- A delay doubled `failures` times, at most `longest`.
create or replace function requeue.backoff(base bigint, longest bigint, failures integer)
returns bigint
language sql immutable parallel safe as $$
    select case
        when base = 0 or longest = 0 then 0
        when failures >= 63 or base > (longest >> least(failures, 62)) then longest
        else base << failures
    end
$$;
