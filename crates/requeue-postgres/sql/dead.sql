-- Tells of dead keys, the longest dead first.
create or replace function requeue.dead(q integer, number bigint, clock bigint)
returns table (
    key bytea, reason text, since bigint, failures integer, deliveries integer, owner text
)
language sql volatile as $$
    select i.key, coalesce(i.reason, ''), greatest(0, c.at - i.since), i.failures,
        i.deliveries, coalesce(i.owner, '')
    from requeue.micros(clock) c (at), requeue.item i
    where i.queue = q and i.reason is not null
    order by i.since, i.key limit number
$$;

-- Where those of the keys are that are dead, the longest dead first; locked in the order of
-- the keys. Without keys, all of them.
create or replace function requeue.buried(q integer, keys bytea[]) returns tid[]
language plpgsql volatile as $$
begin
    return coalesce(array_agg(d.tid order by d.since, d.key), '{}') from (
        select i.ctid as tid, i.since, i.key from requeue.item i
        where i.queue = q and i.reason is not null and (keys is null or i.key = any (keys))
        order by i.key for update
    ) d;
end
$$;
