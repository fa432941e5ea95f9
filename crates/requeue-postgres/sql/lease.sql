-- Locks up to `most` ready keys with a `seq` from `first` to `last`, in order. Skips locked
-- keys. Returns their rows.
create or replace function requeue.lock_ready(
    q integer, first bigint, last bigint, most integer
) returns tid[]
language plpgsql volatile as $$
begin
    return array(
        select i.ctid from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.state = 1 and i.seq between first and last
        order by i.seq limit most
        for update skip locked
    );
end
$$;

-- Locks up to `wanted` ready keys of all priorities. `from_seq` is where priority 0 begins,
-- as far as the caller knows. Skips locked keys. Returns their rows.
create or replace function requeue.lock_ready_by_priority(
    q integer, from_seq bigint, wanted integer, oldest_first boolean
) returns tid[]
language plpgsql volatile as $$
declare
    rows tid[] := requeue.lock_ready(q, -1::bigint << 63, -1, wanted);
begin
    rows := rows || requeue.lock_ready(
        q, from_seq, 9223372036854775807, wanted - cardinality(rows));
    -- If there are fewer, the oldest is among them.
    if oldest_first and cardinality(rows) = wanted then
        return requeue.put_oldest_first(q, rows, from_seq);
    end if;
    return rows;
end
$$;

-- Puts the ready key with the lowest position of all priorities before the given rows, in
-- exchange for the last of them. `from_seq` is as above.
--
-- Locks that key, or leaves the rows as they are if it is locked. Returns the rows.
create or replace function requeue.put_oldest_first(q integer, rows tid[], from_seq bigint)
returns tid[]
language plpgsql volatile as $$
declare
    head record;
    oldest tid;
    lowest bigint := 1::bigint << 55;
    next_seq bigint := -1::bigint << 63;
    last bigint := -1;
begin
    -- Visits the first key of each priority: those above 0, then the others.
    loop
        select i.ctid as tid, i.seq into head from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.state = 1 and i.seq between next_seq and last
        order by i.seq limit 1;
        if found then
            if requeue.position_of(head.seq) < lowest then
                lowest := requeue.position_of(head.seq);
                oldest := head.tid;
            end if;
            next_seq := (head.seq >> 55) + 1 << 55;
        elsif last = -1 then
            next_seq := from_seq;
            last := 9223372036854775807;
        else
            exit;
        end if;
    end loop;
    select i.ctid into oldest from requeue.item i
    where i.ctid = oldest and i.state + 0 = 1 for update skip locked;
    if oldest is null then
        return rows;
    end if;
    return (oldest || array_remove(rows, oldest))[1:cardinality(rows)];
end
$$;

-- Moves due keys, then leases up to `wanted` ready keys in order. With `oldest_first` the
-- first is the one that has been ready for the longest, whatever its priority.
--
-- `from_seq` (of priority 0) and `from_time` are the caller's watermarks: as far as it
-- knows, no ready key and nothing due is below. They save reading keys that are processing,
-- and index entries that are dead but not removed, of which there are many while another
-- transaction stays open. With `thorough`, keys below `from_seq` are looked for if none is
-- above.
--
-- Locks: the row of the owner, at most once a second; then the rows of the keys and of
-- expired lease batches, skipping locked ones; then the tokens, for a moment. Locked rows
-- stay where they are, so they are changed by address.
--
-- Returns parallel arrays for the leased keys (`priorities` is null if all are 0), and
--   more_in      when to look again; too early at times, if keys were leased
--   moved        whether due keys became ready
--   last_seq     the last leased `seq` of priority 0
--   swept_until  the time up to which nothing is due, null if unknown
--   spent        the duration of the call
--   look_again   whether a key may have been added without waking the caller
create or replace function requeue.lease(
    q integer, who text, wanted integer, duration bigint, max_deliveries integer,
    clock bigint, from_seq bigint, from_time bigint, thorough boolean,
    oldest_first boolean,
    out keys bytea[], out tokens bigint[], out deliveries integer[],
    out failures integer[], out priorities smallint[], out waited bigint[],
    out more_in bigint, out paused boolean, out moved boolean,
    out last_seq bigint, out swept_until bigint, out spent bigint, out look_again boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    begun timestamptz := clock_timestamp();
    is_known boolean;
    has_priorities boolean;
    idle_at bigint;
    next_delay bigint;
    next_lease bigint;
    most integer;
    due bigint;
    rows tid[] := '{}';
    number integer;
    first_token bigint;
    first_seq bigint;
    leased tid[];
begin
    swept_until := at;
    moved := false;
    look_again := false;
    -- A statement costs as much as several keys, so one reads all that is always needed.
    select u.paused, u.idle_at, u.has_priorities,
        exists (
            select from requeue.owner o
            where o.queue = q and o.name = who and o.seen between at - 999999 and at
        ),
        (select min(i.delayed_until) from requeue.item i
            where i.queue = q and i.delayed_until >= from_time),
        (select min(b.until) from requeue.lease_batch b
            where b.queue = q and b.until >= from_time)
    into paused, idle_at, has_priorities, is_known, next_delay, next_lease
    from requeue.queue u where u.id = q;
    if not is_known then
        perform requeue.record_owner(q, who, at);
    end if;
    if least(next_delay, next_lease) <= at then
        -- More may be due than is moved.
        swept_until := null;
    end if;
    if next_delay <= at then
        -- Of many, no more than are leased: concurrent calls move the ones behind.
        most := case when wanted < 100 then 500 else least(wanted, 500) end;
        due := requeue.move_due(q, at, from_time, most);
        moved := due > 0;
        -- The rest is locked by concurrent calls, unless it was too much for one call.
        next_delay := case when due = most then at else (
            select min(i.delayed_until) from requeue.item i
            where i.queue = q and i.delayed_until > at
        ) end;
    end if;
    if next_lease <= at then
        select moved or l.returned > 0 into moved
        from requeue.return_expired(q, max_deliveries, at, from_time) l;
        select min(b.until) into next_lease from requeue.lease_batch b
        where b.queue = q and b.until >= from_time;
    end if;

    if not paused and wanted > 0 then
        if has_priorities then
            rows := requeue.lock_ready_by_priority(q, from_seq, wanted, oldest_first);
        else
            -- An array keeps the planner from guessing the limit.
            rows := array(
                select i.ctid from requeue.item i
                where i.queue = q and i.since is not null and i.reason is null
                    and i.state = 1 and i.seq >= from_seq
                order by i.seq limit wanted
                for update skip locked
            );
        end if;
        if cardinality(rows) = 0 and thorough and from_seq > 0 then
            rows := requeue.lock_ready(q, -1::bigint << 63, from_seq - 1, wanted);
        end if;
    end if;

    number := cardinality(rows);
    if number > 0 then
        first_token := requeue.next_tokens(number, at);
        with granted as (
            update requeue.item i set
                state = 2,
                token = first_token + r.n,
                owner = who,
                lease_until = at + duration,
                deliveries = i.deliveries + 1
            from (select unnest(rows), generate_series(0, number - 1)) r (tid, n)
            where i.ctid = r.tid
            returning i.key, i.token, i.deliveries, i.failures, i.seq, i.since, i.ctid as tid
        )
        select array_agg(g.key), array_agg(g.token), array_agg(g.deliveries),
            array_agg(g.failures), array_agg(g.tid), array_agg(at - g.since),
            min(g.seq), max(g.seq)
        into keys, tokens, deliveries, failures, leased, waited, first_seq, last_seq
        from granted g;
        perform requeue.record_counts(q, -number, 0, number, 0, 0, 0);
        if not requeue.has_priority(first_seq | last_seq) then
            insert into requeue.lease_batch values (
                q, at + duration, first_token, first_token + number - 1, first_seq, last_seq);
        else
            insert into requeue.lease_batch
            select q, at + duration, first_token, first_token + number - 1,
                min(i.seq), max(i.seq)
            from unnest(leased) l (tid) join requeue.item i on i.ctid = l.tid
            group by requeue.priority_of(i.seq);
            select array_agg(requeue.priority_of(i.seq) order by l.n),
                max(i.seq) filter (where not requeue.has_priority(i.seq))
            into priorities, last_seq
            from unnest(leased) with ordinality l (tid, n)
            join requeue.item i on i.ctid = l.tid;
        end if;
    end if;

    if number = wanted or paused then
        -- Are ready keys left?
        if exists (
            select from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null
                and i.state = 1 and i.seq >= coalesce(last_seq, from_seq)
        ) then
            next_delay := at;
        elsif has_priorities then
            if exists (
                select from requeue.item i
                where i.queue = q and i.since is not null and i.reason is null
                    and i.state = 1 and i.seq < 0
            ) then
                next_delay := at;
            end if;
        end if;
    end if;
    if number > 0 then
        more_in := least(next_delay, next_lease, at + duration) - at;
    elsif next_lease is null then
        more_in := next_delay - at;
    else
        more_in := least(next_delay, requeue.next_expiry(q, from_time)) - at;
    end if;
    if number = 0 and not paused and idle_at not between at - 500000 and at then
        look_again := requeue.record_idle(q, at);
    end if;
    spent := extract(epoch from clock_timestamp() - begun) * 1000000;
    if clock is null then
        more_in := more_in - spent;
    end if;
end
$$;
