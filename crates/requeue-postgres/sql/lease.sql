-- Up to `most` ready keys with places from `first` to `last`, the first in line first.
create or replace function requeue.ready_between(
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

-- Up to `wanted` ready keys of any priority. `low` is where the line of priority 0 begins,
-- as far as is known.
create or replace function requeue.ready_by_rank(
    q integer, low bigint, wanted integer, longest_first boolean
) returns tid[]
language plpgsql volatile as $$
declare
    rows tid[] := requeue.ready_between(q, -1::bigint << 63, -1, wanted);
begin
    rows := rows || requeue.ready_between(
        q, low, 9223372036854775807, wanted - cardinality(rows));
    -- If there are fewer, that one is among them.
    if longest_first and cardinality(rows) = wanted then
        return requeue.put_longest_first(q, rows, low);
    end if;
    return rows;
end
$$;

-- Puts the ready key that has been longest in the line of its priority before others that
-- are to be handed out, in the place of the last one, unless somebody else has it just now.
-- `low` is where the line of priority 0 begins, as far as is known.
create or replace function requeue.put_longest_first(q integer, rows tid[], low bigint)
returns tid[]
language plpgsql volatile as $$
declare
    head record;
    longest tid;
    earliest bigint := 1::bigint << 55;
    place bigint := -1::bigint << 63;
    last bigint := -1;
begin
    loop
        select i.ctid as tid, i.seq into head from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.state = 1 and i.seq between place and last
        order by i.seq limit 1;
        if found then
            if requeue.unranked(head.seq) < earliest then
                earliest := requeue.unranked(head.seq);
                longest := head.tid;
            end if;
            place := requeue.rank(head.seq) + 1 << 55;
        elsif last = -1 then
            place := low;
            last := 9223372036854775807;
        else
            exit;
        end if;
    end loop;
    select i.ctid into longest from requeue.item i
    where i.ctid = longest and i.state + 0 = 1 for update skip locked;
    if longest is null then
        return rows;
    end if;
    return (longest || array_remove(rows, longest))[1:cardinality(rows)];
end
$$;

-- Hands out up to `wanted` ready keys, the first in line first, after what is due was
-- moved. With `longest_first` the first of them is the one that has been longest in the
-- line of its priority, whatever that is.
--
-- `low_*` are places and times below which nothing is left as far as the caller knows:
-- they save the way over keys that are being processed, and over entries that are dead but
-- not yet removed, which are many while a transaction elsewhere stays open for long. The
-- place is in the line of priority 0. With `thorough` it looks below them too if it finds
-- nothing above. Rows are taken by their address, since they are locked and stay where they
-- are; an array keeps the planner from guessing what `limit` will be.
--
-- A statement costs as much as some keys, so the first one asks for all that is needed in
-- any case. If keys are handed out, `more_in` may be said too early.
create or replace function requeue.lease(
    q integer, who text, wanted integer, duration bigint, max_deliveries integer,
    clock bigint, low_place bigint, low_delay bigint, low_lease bigint, thorough boolean,
    longest_first boolean,
    out keys bytea[], out tokens bigint[], out delivered integer[], out failed integer[],
    out priorities smallint[], out waited bigint[],
    out more_in bigint, out paused boolean, out moved boolean,
    out last_place bigint, out moment bigint, out spent bigint, out look_again boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    begun timestamptz := clock_timestamp();
    known boolean;
    ranked boolean;
    idle bigint;
    next_delay bigint;
    next_lease bigint;
    most integer;
    due bigint;
    rows tid[] := '{}';
    number integer;
    first bigint;
    first_place bigint;
    leased tid[];
begin
    moment := at;
    moved := false;
    look_again := false;
    select u.paused, u.idle_at, u.ranked,
        exists (
            select from requeue.owner o
            where o.queue = q and o.name = who and o.seen between at - 999999 and at
        ),
        (select min(i.wake_at) from requeue.item i
            where i.queue = q and i.wake_at >= low_delay),
        (select min(g.until) from requeue.grants g
            where g.queue = q and g.until >= low_lease)
    into paused, idle, ranked, known, next_delay, next_lease
    from requeue.queue u where u.id = q;
    if not known then
        perform requeue.hear_of(q, who, at);
    end if;
    if least(next_delay, next_lease) <= at then
        -- More may be due than is moved.
        moment := null;
    end if;
    if next_delay <= at then
        -- Of many no more than are handed out: others who move some begin behind these.
        most := case when wanted < 100 then 500 else least(wanted, 500) end;
        due := requeue.move_due(q, at, low_delay, most);
        moved := due > 0;
        -- What is left is with others who move it, unless it was too much for one call.
        next_delay := case when due = most then at else (
            select min(i.wake_at) from requeue.item i where i.queue = q and i.wake_at > at
        ) end;
    end if;
    if next_lease <= at then
        select moved or l.returned > 0 into moved
        from requeue.move_lapsed(q, max_deliveries, at, low_lease) l;
        select min(g.until) into next_lease from requeue.grants g
        where g.queue = q and g.until >= low_lease;
    end if;

    if not paused and wanted > 0 then
        if ranked then
            rows := requeue.ready_by_rank(q, low_place, wanted, longest_first);
        else
            rows := array(
                select i.ctid from requeue.item i
                where i.queue = q and i.since is not null and i.reason is null
                    and i.state = 1 and i.seq >= low_place
                order by i.seq limit wanted
                for update skip locked
            );
        end if;
        if cardinality(rows) = 0 and thorough and low_place > 0 then
            rows := requeue.ready_between(q, -1::bigint << 63, low_place - 1, wanted);
        end if;
    end if;

    number := cardinality(rows);
    if number > 0 then
        first := requeue.tokens(number, at) - 1;
        with granted as (
            update requeue.item i set
                state = 2,
                token = first + r.n,
                owner = who,
                lease_until = at + duration,
                deliveries = i.deliveries + 1
            from (select unnest(rows), generate_series(1, number)) r (tid, n)
            where i.ctid = r.tid
            returning i.key, i.token, i.deliveries, i.failures, i.seq, i.since, i.ctid as tid
        )
        select array_agg(g.key), array_agg(g.token), array_agg(g.deliveries),
            array_agg(g.failures), array_agg(g.tid), array_agg(at - g.since),
            min(g.seq), max(g.seq)
        into keys, tokens, delivered, failed, leased, waited, first_place, last_place
        from granted g;
        if requeue.rank(first_place | last_place) = 0 then
            insert into requeue.grants
            values (q, at + duration, first + 1, first + number, first_place, last_place);
        else
            insert into requeue.grants
            select q, at + duration, first + 1, first + number, min(i.seq), max(i.seq)
            from unnest(leased) a (tid) join requeue.item i on i.ctid = a.tid
            group by requeue.rank(i.seq);
            select array_agg((-requeue.rank(i.seq))::smallint order by a.n),
                max(i.seq) filter (where requeue.rank(i.seq) = 0)
            into priorities, last_place
            from unnest(leased) with ordinality a (tid, n)
            join requeue.item i on i.ctid = a.tid;
        end if;
    end if;

    if number = wanted or paused then
        if exists (
            select from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null
                and i.state = 1 and i.seq >= coalesce(last_place, low_place)
        ) then
            next_delay := at;
        elsif ranked then
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
        more_in := least(next_delay, requeue.next_expiry(q, low_lease)) - at;
    end if;
    if number = 0 and not paused and idle not between at - 500000 and at then
        look_again := requeue.note_idle(q, at);
    end if;
    spent := extract(epoch from clock_timestamp() - begun) * 1000000;
    if clock is null then
        more_in := more_in - spent;
    end if;
end
$$;
