-- Returns up to `most` dead keys, the longest dead first. Takes no locks.
create or replace function requeue.dead(q integer, most bigint, clock bigint)
returns table (
    key bytea, reason text, since bigint, failures integer, deliveries integer, owner text
)
language sql volatile as $$
    select i.key, coalesce(i.reason, ''), greatest(0, c.at - i.since), i.failures,
        i.deliveries, coalesce(i.owner, '')
    from requeue.now_micros(clock) c (at), requeue.item i
    where i.queue = q and i.reason is not null
    order by i.since, i.key limit most
$$;

-- Locks the dead keys among `keys`, or all dead keys if it is null, in key order. Returns
-- their rows, the longest dead first.
create or replace function requeue.lock_dead(q integer, keys bytea[]) returns tid[]
language plpgsql volatile as $$
begin
    if keys is null then
        return coalesce(array_agg(d.tid order by d.since, d.key), '{}') from (
            select i.ctid as tid, i.since, i.key from requeue.item i
            where i.queue = q and i.reason is not null
            order by i.key for update
        ) d;
    end if;
    return coalesce(array_agg(d.tid order by d.since, d.key), '{}')
    from unnest(keys) a (key) cross join lateral (
        select i.ctid as tid, i.since, i.key from requeue.item i
        where i.queue = q and i.key = a.key and i.state + 0 = 3 offset 0 for update
    ) d;
end
$$;
