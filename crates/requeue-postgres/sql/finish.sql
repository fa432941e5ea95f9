-- Finishes leases: 'succeed', 'requeue_after', 'retry', 'retry_after', 'give_up', 'release'
-- or 'done'.
--
-- The keys are distinct and sorted, and the other arrays are parallel to them. `ords` are
-- the positions of the keys in the caller's batch. `delays` and `limits` are the first and
-- the longest delay of a backoff, or the delay; `errors` are for people. These three may be
-- null if no key needs them. `pause` and `burst` are the rate that retries share, if any.
--
-- Locks: the rows of the leases that are held, in key order, then the row of the queue if
-- retries share a rate. Rows are locked before anything is decided: a statement that
-- decides while it waits for a lock misses the add that it waited for.
--
-- Returns indexes of `keys`: in `done` the leases that ended and left no row, in `others`
-- the rest, with their results ('done', 'ready', 'delayed' or 'dead') and delays. A lease
-- in neither was lost.
create or replace function requeue.finish(
    q integer, keys bytea[], tokens bigint[], ords integer[], finishes text[],
    delays bigint[], limits bigint[], errors text[], pause bigint, burst bigint,
    clock bigint,
    out done integer[], out others integer[], out results text[], out waits bigint[]
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    pos bigint;
    empty_rows tid[];
    other_rows tid[];
    were_dirty boolean[];
    were_delayed boolean[];
    failed integer[];
    shared bigint;
    forgotten bigint;
    counts record;
begin
    select
        array_agg(h.tid) filter (where h.leaves_nothing),
        array_agg(h.n) filter (where h.leaves_nothing),
        array_agg(h.tid) filter (where not h.leaves_nothing),
        array_agg(h.n) filter (where not h.leaves_nothing),
        array_agg(h.dirty) filter (where not h.leaves_nothing),
        array_agg(h.failures) filter (where not h.leaves_nothing),
        array_agg(h.delayed_until is not null) filter (where not h.leaves_nothing),
        count(*) filter (where h.leaves_nothing and h.failures > 0)
    into empty_rows, done, other_rows, others, were_dirty, failed, were_delayed, forgotten
    from (
        select i.*, a.n, not i.dirty and i.delayed_until is null
            and (a.finish = 'succeed' or a.finish = 'done' and i.failures = 0)
            as leaves_nothing
        from (
            select unnest(keys), unnest(tokens), unnest(finishes),
                generate_series(1, cardinality(keys))
        ) a (key, token, finish, n)
        cross join lateral (
            select j.ctid as tid, j.dirty, j.delayed_until, j.failures from requeue.item j
            where j.queue = q and j.key = a.key and j.token = a.token and j.state + 0 = 2
            offset 0 for update
        ) i
    ) h;
    delete from requeue.item i where i.ctid = any (empty_rows);
    if done is not null then
        perform requeue.record_counts(q, 0, 0, -cardinality(done), 0, -forgotten, 0);
    end if;
    if others is null then
        return;
    end if;

    if pause is not null then
        shared := requeue.reserve_rate(
            q, (select count(*) from unnest(others) o (n) where finishes[o.n] = 'retry'),
            pause, burst, at, clock);
    end if;
    pos := requeue.next_position();
    with asked as (
        select r.*, finishes[r.n] as finish, case finishes[r.n]
                when 'retry' then greatest(
                    requeue.backoff_delay(delays[r.n], limits[r.n], r.failures),
                    shared + pause * (
                        row_number() over (partition by finishes[r.n] order by ords[r.n])
                        - 1),
                    0)
                else coalesce(delays[r.n], 0) end as delay
        from unnest(other_rows, others, were_dirty, were_delayed, failed)
            r (tid, n, dirty, delayed, failures)
    ), judged as materialized (
        select a.*, case
                when a.dirty or a.finish = 'release' then 'ready'
                when a.finish = 'give_up' then 'dead'
                when a.finish in ('succeed', 'done') then 'done'
                when a.delay = 0 then 'ready'
                else 'delayed' end as result,
            a.finish in ('retry', 'retry_after') as counts,
            a.finish in ('succeed', 'requeue_after') or a.finish = 'give_up' and a.dirty
                as forgets
        from asked a
    ), finished as (
        update requeue.item i set
            state = case j.result when 'ready' then 1 when 'dead' then 3 else 0 end,
            dirty = false,
            seq = requeue.make_seq(case
                when j.result = 'dead' then 0
                when j.finish in ('succeed', 'done', 'give_up')
                    then coalesce(i.pending_priority, requeue.priority_of(i.seq))
                else greatest(requeue.priority_of(i.seq), i.pending_priority) end,
                pos + ords[j.n]),
            pending_priority = null,
            since = case when j.result in ('ready', 'dead') then at end,
            lease_until = null,
            delayed_until = case
                when j.result = 'dead' then null
                when j.delay > 0 then least(i.delayed_until, at + j.delay)
                else i.delayed_until end,
            deliveries = case
                when j.result = 'dead' then i.deliveries
                when j.finish = 'release' then i.deliveries - 1
                else 0 end,
            failures = case
                when j.counts then i.failures + 1
                when j.forgets then 0
                else i.failures end,
            error = case
                when j.counts then errors[j.n]
                when j.forgets then null
                else i.error end,
            reason = case j.result when 'dead' then coalesce(errors[j.n], '') end
        from judged j
        where i.ctid = j.tid
        returning j.n, j.result, j.delay, i.state, j.dirty,
            (i.delayed_until is not null)::integer - j.delayed::integer as delayed,
            (i.failures > 0 and i.state <> 3)::integer - (j.failures > 0)::integer as failing
    )
    select array_agg(f.n) as others, array_agg(f.result) as results,
        array_agg(f.delay) as waits, count(*) as total,
        count(*) filter (where f.state = 1) as ready, sum(f.delayed) as delayed,
        count(*) filter (where f.dirty) as dirty, sum(f.failing) as failing,
        count(*) filter (where f.state = 3) as dead
    into counts
    from finished f;
    others := counts.others;
    results := counts.results;
    waits := counts.waits;
    perform requeue.record_counts(
        q, counts.ready, counts.delayed, -counts.total, -counts.dirty, counts.failing,
        counts.dead);
end
$$;
