-- Ends leases that went well and leave nothing behind: the tokens of those whose rows were
-- deleted. All others are left to `finish`, in a transaction of its own, which then sees
-- what an add made of them meanwhile.
--
-- The keys are distinct and sorted. `succeed` forgets failures. What is found may change
-- before it is deleted, so that is asked again: no token that is granted meanwhile is as
-- low as one of these. A join deletes in the order of the keys, as everybody locks them; a
-- list of addresses would be sorted first.
create or replace function requeue.finish_clean(
    q integer, keys bytea[], tokens bigint[], succeed boolean[]
) returns bigint[]
language plpgsql volatile as $$
declare
    rows tid[];
    newest bigint;
    done bigint[];
begin
    select array_agg(i.tid), max(a.token) into rows, newest
    from unnest(keys, tokens, succeed) a (key, token, succeed)
    cross join lateral (
        select j.ctid as tid from requeue.item j
        where j.queue = q and j.key = a.key and j.token = a.token
            and (a.succeed or j.failures + 0 = 0)
        offset 0
    ) i;
    with gone as (
        delete from requeue.item i
        using unnest(rows) r (tid)
        where i.ctid = r.tid and i.state + 0 = 2 and i.token <= newest
            and not i.dirty and i.wake_at is null
        returning i.token
    )
    select array_agg(g.token) into done from gone g;
    return done;
end
$$;

-- The same for rows of which it is known where they were when they were handed out, in the
-- order of their keys. What is elsewhere by now was changed, and is left to `finish` too.
--
-- Here and where keys are added, arrays are taken apart in a list of columns: what `from`
-- takes apart is put down as rows first, which costs as much as looking at a row.
create or replace function requeue.finish_known(
    addresses tid[], tokens bigint[], succeed boolean[]
) returns bigint[]
language plpgsql volatile as $$
declare
    done bigint[];
begin
    with gone as (
        delete from requeue.item i
        using (
            select unnest(addresses), unnest(tokens), unnest(succeed)
        ) a (tid, token, succeed)
        where i.ctid = a.tid and i.token = a.token and i.state + 0 = 2
            and not i.dirty and i.wake_at is null and (a.succeed or i.failures + 0 = 0)
        returning i.token
    )
    select array_agg(g.token) into done from gone g;
    return done;
end
$$;

-- The same for rows that most probably are all as they were handed out: to be told of each
-- row costs as much as a quarter of its end. If one is not, all of that is undone and
-- `finish_known` has them.
create or replace function requeue.finish_all(
    addresses tid[], tokens bigint[], succeed boolean[]
) returns bigint[]
language plpgsql volatile as $$
declare
    number integer;
begin
    delete from requeue.item i
    using (
        select unnest(addresses), unnest(tokens), unnest(succeed)
    ) a (tid, token, succeed)
    where i.ctid = a.tid and i.token = a.token and i.state + 0 = 2
        and not i.dirty and i.wake_at is null and (a.succeed or i.failures + 0 = 0);
    get diagnostics number = row_count;
    if number < cardinality(tokens) then
        raise sqlstate 'RQ001';
    end if;
    return tokens;
exception when sqlstate 'RQ001' then
    return requeue.finish_known(addresses, tokens, succeed);
end
$$;

-- Ends leases, in any way:
--   0  done      1  succeed     2  retry by backoff      3  retry after a delay
--   4  bury      5  release
-- `delays` and `limits` are the base and the longest delay of a backoff, or the delay.
-- Answers for those that were held: 0 done, 1 ready again, 2 delayed, 3 dead.
--
-- The rows are locked first, in the order of their keys: what is decided after that sees
-- what they hold. Deciding in the same statement would miss an add that it waited for.
create or replace function requeue.finish(
    q integer, keys bytea[], held bigint[], ords integer[], endings smallint[],
    delays bigint[], limits bigint[], texts text[], pause bigint, burst bigint,
    clock bigint,
    out places integer[], out answers smallint[], out waits bigint[]
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
    retries bigint;
    shared bigint;
begin
    perform requeue.lock_keys(q, keys);
    if pause is not null then
        select count(*) into retries
        from unnest(keys, held, endings) a (key, token, ending)
        cross join lateral (
            select j.state, j.token from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
        where a.ending = 2 and i.state = 2 and i.token = a.token;
        shared := requeue.reserve(q, retries, pause, burst, at);
    end if;

    with asked as (
        select i.tid, a.ord, a.ending, a.text, i.dirty, case a.ending
                when 2 then greatest(
                    requeue.backoff(a.delay, a.longest, i.failures),
                    shared + pause
                        * (row_number() over (partition by a.ending order by a.ord) - 1),
                    0)
                when 3 then a.delay
                else 0 end as delay
        from unnest(keys, held, ords, endings, delays, limits, texts)
            a (key, token, ord, ending, delay, longest, text)
        cross join lateral (
            select j.ctid as tid, j.state, j.token, j.dirty, j.failures from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
        where i.state = 2 and i.token = a.token
    ), told as materialized (
        select a.*, case
            when a.dirty or a.ending = 5 or a.ending in (2, 3) and a.delay = 0 then 1
            when a.ending in (2, 3) then 2
            when a.ending = 4 then 3
            else 0 end as answer
        from asked a
    ), ended as (
        update requeue.item i set
            state = (array[0, 1, 0, 3])[t.answer + 1],
            dirty = false,
            seq = requeue.ranked(place + t.ord, case
                when t.answer = 3 then 0
                when t.ending in (2, 3, 5) then least(requeue.rank(i.seq), i.planned)
                else coalesce(i.planned, requeue.rank(i.seq)) end),
            planned = null,
            since = case when t.answer in (1, 3) then at end,
            lease_until = null,
            wake_at = case
                when t.answer = 3 then null
                when t.delay > 0 then least(i.wake_at, at + t.delay)
                else i.wake_at end,
            deliveries = case
                when t.answer = 3 then i.deliveries
                when t.ending = 5 then i.deliveries - 1
                else 0 end,
            failures = case
                when t.ending = 2 then i.failures + 1
                when t.ending in (1, 3) or t.ending = 4 and t.dirty then 0
                else i.failures end,
            error = case
                when t.ending = 2 then t.text
                when t.ending in (1, 3) or t.ending = 4 and t.dirty then null
                else i.error end,
            reason = case when t.answer = 3 then t.text end
        from told t
        where i.ctid = t.tid
        returning t.ord, t.answer, t.delay
    )
    select array_agg(e.ord), array_agg(e.answer::smallint), array_agg(e.delay)
    into places, answers, waits
    from ended e;

    perform requeue.tidy(q, keys);
end
$$;
