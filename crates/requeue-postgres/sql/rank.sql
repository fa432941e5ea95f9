-- Priorities of adds. What is planned for a key has the highest of the adds that planned it.

-- Notes that a key of the queue has another priority than 0.
create or replace function requeue.note_ranked(q integer) returns void
language sql volatile as $$
    select setval('requeue.ranked', 1);
    update requeue.queue set ranked = true where id = q and not ranked
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
