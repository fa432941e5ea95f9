-- Adds keys when their backoff says, which counts one more failure of each. The keys are
-- distinct and sorted, and `ords` and `ranked` are as those of `add_keys`; `bases` and
-- `limits` are their backoffs, and `pause` and `burst` the rate that the whole queue
-- shares, if there is one. What `add_keys` leaves to it counts no failure, and has its
-- place already.
--
-- The first statement makes and locks the rows, so that the others see what they hold. The
-- row of the queue is locked after that, and by everybody: nobody who has it waits.
create or replace function requeue.add_limited(
    q integer, keys bytea[], ords bigint[], ranked boolean, bases bigint[],
    limits bigint[], pause bigint, burst bigint, revive_after bigint, clock bigint,
    counted integer default 1, place bigint default null,
    out changed bytea[], out states smallint[], out waits bigint[]
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    at bigint := requeue.micros(clock);
    ranks bigint[];
    shared bigint;
begin
    place := coalesce(place, requeue.places());
    insert into requeue.item as i (queue, key, seq, state)
    select q, k.key, place, 0 from unnest(keys) k (key)
    on conflict (queue, key) do update set seq = i.seq where false;
    if ranked then
        perform requeue.note_ranked(q);
    end if;
    if pg_sequence_last_value('requeue.ranked') is not null then
        ranks := requeue.new_ranks(q, keys, ords);
    end if;
    if pause is not null then
        shared := requeue.reserve(q, cardinality(keys), pause, burst, at);
    end if;

    with asked as (
        select i.tid, i.state, i.dirty, i.wake_at, a.ord, greatest(
                requeue.backoff(a.base, a.longest,
                    case i.state when 3 then 0 else i.failures end),
                shared + pause
                    * (row_number() over (order by requeue.unranked(a.ord)) - 1),
                case i.state when 3 then revive_after end, 0
            ) as delay
        from unnest(keys, ords, bases, limits) a (key, ord, base, longest)
        cross join lateral (
            select j.ctid as tid, j.state, j.dirty, j.wake_at, j.failures
            from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    ), told as materialized (
        select a.tid, a.ord, a.delay, case
                when a.delay > 0 then a.wake_at is null or a.wake_at > at + a.delay
                else a.state in (0, 3) or a.state = 2 and not a.dirty end as news
        from asked a
    ), added as (
        update requeue.item i set
            state = case
                when i.state in (0, 3) and t.delay = 0 then 1
                when i.state = 3 then 0
                else i.state end,
            dirty = i.dirty or i.state = 2 and t.delay = 0,
            seq = case when i.state in (0, 3) and t.news then place + t.ord else i.seq end,
            since = case
                when i.state in (0, 3) and t.delay = 0 then at
                when i.state = 3 then null
                else i.since end,
            wake_at = case
                when t.delay = 0 then i.wake_at
                else least(i.wake_at, at + t.delay) end,
            failures = case i.state when 3 then counted else i.failures + counted end,
            deliveries = case i.state when 3 then 0 else i.deliveries end,
            error = case i.state when 3 then null else i.error end,
            reason = null
        from told t
        where i.ctid = t.tid and (t.news or counted > 0)
        returning i.key, t.delay, case
            when not t.news then -1
            when t.delay > 0 then 0
            else i.state end as state
    )
    select array_agg(a.key), array_agg(a.state::smallint), array_agg(a.delay)
    into changed, states, waits
    from added a;

    if ranks is not null then
        perform requeue.give_ranks(q, keys, ords, ranks, place);
    end if;
end
$$;
