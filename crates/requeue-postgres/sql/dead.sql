-- Tells of dead keys, the longest dead first.
create or replace function requeue.dead(q integer, number bigint, clock bigint)
returns table (
    key bytea, reason text, since bigint, failures integer, deliveries integer, owner text
)
language sql volatile as $$
    select i.key, coalesce(i.reason, ''), greatest(0, c.at - i.since), i.failures,
        i.deliveries, coalesce(i.owner, '')
    from requeue.micros(clock) c (at), requeue.item i
    where i.queue = q and i.state = 3
    order by i.since, i.key limit number
$$;

-- Those of the keys that are dead, locked in their order. Without keys, all of them.
create or replace function requeue.buried(q integer, keys bytea[]) returns bytea[]
language plpgsql volatile as $$
begin
    return array(
        select i.key from requeue.item i
        where i.queue = q and i.state = 3 and (keys is null or i.key = any (keys))
        order by i.key for update
    );
end
$$;
