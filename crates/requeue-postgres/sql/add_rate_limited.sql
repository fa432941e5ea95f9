-- Adds keys after the delay of their backoff, and counts one failure of each.
--
-- `keys`, `seqs` and `has_priorities` are as in `add_keys`. `bases` and `limits` are the
-- first and the longest delay of each backoff, `pause` and `burst` the rate that the queue
-- shares, if any. `add_keys` leaves some keys to this function: with `counted` 0, so that no
-- failure is counted, and a position that it has reserved.
--
-- Locks: the rows of the keys, in key order, by a separate statement, so that the
-- following ones see the current rows. Then, for priorities other than 0, the locks of
-- `mark_priorities`, and for a shared rate the row of the queue.
--
-- Returns the keys that changed, with their states (-1 for an add that only counted a
-- failure) and their delays.
create or replace function requeue.add_rate_limited(
    q integer, keys bytea[], seqs bigint[], has_priorities boolean, bases bigint[],
    limits bigint[], pause bigint, burst bigint, revive_after bigint, clock bigint,
    counted integer default 1, pos bigint default null,
    out changed bytea[], out states smallint[], out waits bigint[]
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    at bigint := requeue.now_micros(clock);
    priorities smallint[];
    shared bigint;
    counts record;
begin
    pos := coalesce(pos, requeue.next_position());
    insert into requeue.item as i (queue, key, seq, state)
    select q, k.key, pos, 0 from unnest(keys) k (key)
    on conflict (queue, key) do update set seq = i.seq where false;
    if has_priorities then
        perform requeue.mark_priorities(q);
    end if;
    if pg_sequence_last_value('requeue.any_priorities') is not null then
        priorities := requeue.merged_priorities(q, keys, seqs);
    end if;
    if pause is not null then
        shared := requeue.reserve_rate(q, cardinality(keys), pause, burst, at, clock);
    end if;

    with asked as (
        select i.tid, i.state, i.dirty, i.delayed_until, i.failures, a.seq, greatest(
                requeue.backoff_delay(a.base, a.longest,
                    case i.state when 3 then 0 else i.failures end),
                shared + pause
                    * (row_number() over (order by requeue.position_of(a.seq)) - 1),
                case i.state when 3 then revive_after end, 0
            ) as delay
        from unnest(keys, seqs, bases, limits) a (key, seq, base, longest)
        cross join lateral (
            select j.ctid as tid, j.state, j.dirty, j.delayed_until, j.failures
            from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    ), judged as materialized (
        select a.*, case
                when a.delay > 0 then
                    a.delayed_until is null or a.delayed_until > at + a.delay
                else a.state in (0, 3) or a.state = 2 and not a.dirty end as changes
        from asked a
    ), added as (
        update requeue.item i set
            state = case
                when i.state in (0, 3) and j.delay = 0 then 1
                when i.state = 3 then 0
                else i.state end,
            dirty = i.dirty or i.state = 2 and j.delay = 0,
            seq = case when i.state in (0, 3) and j.changes then pos + j.seq else i.seq end,
            since = case
                when i.state in (0, 3) and j.delay = 0 then at
                when i.state = 3 then null
                else i.since end,
            delayed_until = case
                when j.delay = 0 then i.delayed_until
                else least(i.delayed_until, at + j.delay) end,
            failures = case i.state when 3 then counted else i.failures + counted end,
            deliveries = case i.state when 3 then 0 else i.deliveries end,
            error = case i.state when 3 then null else i.error end,
            reason = null
        from judged j
        where i.ctid = j.tid and (j.changes or counted > 0)
        returning i.key, j.delay, case
                when not j.changes then -1
                when j.delay > 0 then 0
                else i.state end as state,
            (i.state = 1)::integer - (j.state = 1)::integer as ready,
            (i.delayed_until is not null)::integer - (j.delayed_until is not null)::integer
                as delayed,
            i.dirty::integer - j.dirty::integer as dirty,
            (i.failures > 0)::integer - (j.failures > 0 and j.state <> 3)::integer
                as failing,
            -(j.state = 3)::integer as dead
    )
    select array_agg(a.key) as changed, array_agg(a.state::smallint) as states,
        array_agg(a.delay) as waits, sum(a.ready) as ready, sum(a.delayed) as delayed,
        sum(a.dirty) as dirty, sum(a.failing) as failing, sum(a.dead) as dead
    into counts
    from added a;
    changed := counts.changed;
    states := counts.states;
    waits := counts.waits;
    if changed is not null then
        perform requeue.record_counts(
            q, counts.ready, counts.delayed, 0, counts.dirty, counts.failing, counts.dead);
    end if;

    if priorities is not null then
        perform requeue.set_priorities(q, keys, seqs, priorities, pos);
    end if;
end
$$;
