-- Priorities of adds. What is planned for a key has the highest of the adds that planned it.

-- Notes that a key of the queue has another priority than 0. The lock keeps others from
-- noting the contrary before that key is there for them to see.
create or replace function requeue.note_ranked(q integer) returns void
language sql volatile as $$
    select pg_advisory_xact_lock_shared('requeue.ranked'::regclass::integer, q);
    select setval('requeue.ranked', 1);
    update requeue.queue set ranked = true where id = q and not ranked
$$;

-- Notes that no key of the queue has another priority than 0 any more, if that is so and
-- there are few keys to look at. It waits for nobody; what it sees, it sees with the lock.
--
-- Nobody loses anything if this is not on disk.
create or replace function requeue.note_unranked(q integer) returns void
language plpgsql volatile as $$
begin
    if not pg_try_advisory_xact_lock('requeue.ranked'::regclass::integer, q) then
        return;
    end if;
    update requeue.queue u set ranked = false
    from (select ctid as tid from requeue.queue where id = q for update skip locked) f
    where u.ctid = f.tid and (
        select count(*) < 1000
            and coalesce(bool_and(requeue.rank(i.seq) = 0 and i.planned is null), true)
        from (select j.seq, j.planned from requeue.item j where j.queue = q limit 1000) i
    );
end
$$;

-- The ranks that keys will have once they are added with these. Their rows are locked.
create or replace function requeue.new_ranks(q integer, keys bytea[], ords bigint[])
returns bigint[]
language plpgsql volatile as $$
begin
    return array(
        select least(
            requeue.rank(a.ord),
            case when i.state = 1 or i.dirty or i.wake_at is not null
                then coalesce(i.planned, requeue.rank(i.seq)) end)
        from unnest(keys, ords) a (key, ord) cross join lateral (
            select j.state, j.dirty, j.wake_at, j.planned, j.seq from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    );
end
$$;

-- Gives keys that were added their ranks. One that is ready and gets another goes to the
-- end of its new line.
create or replace function requeue.give_ranks(
    q integer, keys bytea[], ords bigint[], ranks bigint[], place bigint
) returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select i.tid, i.state, a.ord, a.rank, i.own
        from unnest(keys, ords, ranks) a (key, ord, rank) cross join lateral (
            select j.ctid as tid, j.state, j.planned, requeue.rank(j.seq) as own
            from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
        where a.rank <> coalesce(i.planned, i.own)
    )
    update requeue.item i set
        seq = case f.state when 2 then i.seq else requeue.ranked(place + f.ord, f.rank) end,
        planned = case f.state when 2 then nullif(f.rank, f.own) end
    from found f
    where i.ctid = f.tid;
end
$$;
