-- Returns the owners that were seen in the last day or hold a lease. Takes no locks.
create or replace function requeue.workers(q integer, clock bigint)
returns table (owner text, seen bigint, processing bigint)
language sql volatile as $$
    with holders as (
        select i.owner, count(*) as processing
        from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_leased_seq(q) and i.state = 2
        group by i.owner
    )
    select o.name, greatest(0, c.at - o.seen), coalesce(h.processing, 0)
    from requeue.now_micros(clock) c (at),
        requeue.owner o left join holders h on h.owner = o.name
    where o.queue = q and (o.seen >= c.at - 86400000000 or h.processing > 0)
    order by o.name
$$;
