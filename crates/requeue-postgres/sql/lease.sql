-- Hands out up to `wanted` ready keys, the first in line first, after what is due was
-- moved.
--
-- `low_*` are places and times below which nothing is left as far as the caller knows:
-- they save the way over keys that are being processed, and over entries that are dead but
-- not yet removed, which are many while a transaction elsewhere stays open for long. With
-- `thorough` it looks below them too if it finds nothing above. Rows are taken by their address, since they are locked and
-- stay where they are; an array keeps the planner from guessing what `limit` will be.
create or replace function requeue.lease(
    q integer, who text, wanted integer, duration bigint, max_deliveries integer,
    clock bigint, low_place bigint, low_delay bigint, low_lease bigint, thorough boolean,
    out keys bytea[], out tokens bigint[], out delivered integer[], out failed integer[],
    out addresses tid[],
    out more_in bigint, out paused boolean, out moved boolean,
    out last_place bigint, out moment bigint, out spent bigint, out look_again boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    rows tid[] := '{}';
    number integer;
    first bigint;
    first_place bigint;
    low bigint := low_place;
    taken bigint;
    begun timestamptz := clock_timestamp();
begin
    moment := at;
    moved := false;
    perform requeue.hear_of(q, who, at);
    if exists (
        select from requeue.item i where i.queue = q and i.wake_at between low_delay and at
    ) or exists (
        select from requeue.grants g where g.queue = q and g.until between low_lease and at
    ) then
        -- More may be due than is moved.
        moment := null;
        select e.due + e.returned > 0 into moved
        from requeue.expire(q, max_deliveries, at, low_delay, low_lease) e;
    end if;

    select u.paused into paused from requeue.queue u where u.id = q;
    if not paused and wanted > 0 then
        if low > 0 then
            low := greatest(low, requeue.taken(q));
        end if;
        select coalesce(array_agg(f.tid), '{}'), max(f.seq) into rows, taken from (
            select i.ctid as tid, i.seq from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null
                and i.state = 1 and i.seq >= low
            order by i.seq limit wanted
            for update skip locked
        ) f;
        if taken is not null then
            perform requeue.take(q, taken);
        elsif thorough and low > 0 then
            rows := array(
                select i.ctid from requeue.item i
                where i.queue = q and i.since is not null and i.reason is null
                    and i.state = 1 and i.seq < low
                order by i.seq limit wanted
                for update skip locked
            );
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
            from unnest(rows) with ordinality r (tid, n)
            where i.ctid = r.tid
            returning i.key, i.token, i.deliveries, i.failures, i.seq, i.ctid as tid
        )
        select array_agg(g.key), array_agg(g.token), array_agg(g.deliveries),
            array_agg(g.failures), array_agg(g.tid), min(g.seq), max(g.seq)
        into keys, tokens, delivered, failed, addresses, first_place, last_place
        from granted g;
        insert into requeue.grants
        values (q, at + duration, first + 1, first + number, first_place, last_place);
    end if;

    if (number = wanted or paused) and exists (
        select from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.state = 1 and i.seq >= coalesce(last_place, low_place)
    ) then
        more_in := 0;
    else
        more_in := least(
            (select min(i.wake_at) from requeue.item i
                where i.queue = q and i.wake_at >= low_delay),
            requeue.next_expiry(q, low_lease)
        ) - at;
    end if;
    look_again := number = 0 and not paused and requeue.note_idle(q, at);
    spent := extract(epoch from clock_timestamp() - begun) * 1000000;
end
$$;
