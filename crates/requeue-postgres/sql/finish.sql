-- Finishes leases, each in one of these ways:
--   0  done      1  succeed     2  retry with backoff     3  requeue after a delay
--   4  give up   5  release     6  retry after a delay
--
-- The keys are distinct and sorted, and the other arrays are parallel to them. `ords` are
-- the places of the keys in the caller's batch. `delays` and `limits` are the first and the
-- longest delay of a backoff, or the delay; `texts` are errors and reasons. These three may
-- be null if no key needs them.
--
-- Locks: the rows of the leases that are held, in key order, then the row of the queue if
-- retries share a rate. Rows are locked before anything is decided. A statement that
-- decides while it waits for a lock misses the add that it waited for.
--
-- Returns indexes of `keys`: in `done` the leases that ended and left no row, in `others`
-- the rest, with their results (0 done, 1 ready again, 2 delayed, 3 dead) and delays. A
-- lease in neither was lost.
create or replace function requeue.finish(
    q integer, keys bytea[], tokens bigint[], ords integer[], finishes smallint[],
    delays bigint[], limits bigint[], texts text[], pause bigint, burst bigint,
    clock bigint,
    out done integer[], out others integer[], out results smallint[], out waits bigint[]
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint;
    empty_rows tid[];
    other_rows tid[];
    were_dirty boolean[];
    failed integer[];
    shared bigint;
begin
    select
        array_agg(h.tid) filter (where h.leaves_nothing),
        array_agg(h.n) filter (where h.leaves_nothing),
        array_agg(h.tid) filter (where not h.leaves_nothing),
        array_agg(h.n) filter (where not h.leaves_nothing),
        array_agg(h.dirty) filter (where not h.leaves_nothing),
        array_agg(h.failures) filter (where not h.leaves_nothing)
    into empty_rows, done, other_rows, others, were_dirty, failed
    from (
        select i.*, a.n, not i.dirty and i.wake_at is null
            and (a.finish = 1 or a.finish = 0 and i.failures = 0) as leaves_nothing
        from (
            select unnest(keys), unnest(tokens), unnest(finishes),
                generate_series(1, cardinality(keys))
        ) a (key, token, finish, n)
        cross join lateral (
            select j.ctid as tid, j.dirty, j.wake_at, j.failures from requeue.item j
            where j.queue = q and j.key = a.key and j.token = a.token and j.state + 0 = 2
            offset 0 for update
        ) i
    ) h;
    delete from requeue.item i where i.ctid = any (empty_rows);
    if others is null then
        return;
    end if;

    if pause is not null then
        shared := requeue.reserve(
            q, (select count(*) from unnest(others) o (n) where finishes[o.n] = 2),
            pause, burst, at);
    end if;
    place := requeue.places();
    with asked as (
        select r.*, finishes[r.n] as finish, case finishes[r.n]
                when 2 then greatest(
                    requeue.backoff(delays[r.n], limits[r.n], r.failures),
                    shared + pause * (
                        row_number() over (partition by finishes[r.n] order by ords[r.n])
                        - 1),
                    0)
                when 3 then delays[r.n]
                when 6 then delays[r.n]
                else 0 end as delay
        from unnest(other_rows, others, were_dirty, failed) r (tid, n, dirty, failures)
    ), judged as materialized (
        select a.*, case
            when a.dirty or a.finish = 5 or a.finish in (2, 3, 6) and a.delay = 0 then 1
            when a.finish in (2, 3, 6) then 2
            when a.finish = 4 then 3
            else 0 end as result
        from asked a
    ), finished as (
        update requeue.item i set
            state = (array[0, 1, 0, 3])[j.result + 1],
            dirty = false,
            seq = requeue.ranked(place + ords[j.n], case
                when j.result = 3 then 0
                when j.finish in (2, 3, 5, 6) then least(requeue.rank(i.seq), i.planned)
                else coalesce(i.planned, requeue.rank(i.seq)) end),
            planned = null,
            since = case when j.result in (1, 3) then at end,
            lease_until = null,
            wake_at = case
                when j.result = 3 then null
                when j.delay > 0 then least(i.wake_at, at + j.delay)
                else i.wake_at end,
            deliveries = case
                when j.result = 3 then i.deliveries
                when j.finish = 5 then i.deliveries - 1
                else 0 end,
            failures = case
                when j.finish in (2, 6) then i.failures + 1
                when j.finish in (1, 3) or j.finish = 4 and j.dirty then 0
                else i.failures end,
            error = case
                when j.finish in (2, 6) then texts[j.n]
                when j.finish in (1, 3) or j.finish = 4 and j.dirty then null
                else i.error end,
            reason = case when j.result = 3 then coalesce(texts[j.n], '') end
        from judged j
        where i.ctid = j.tid
        returning j.n, j.result, j.delay
    )
    select array_agg(f.n), array_agg(f.result::smallint), array_agg(f.delay)
    into others, results, waits
    from finished f;
end
$$;
