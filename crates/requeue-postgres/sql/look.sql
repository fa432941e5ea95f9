-- Moves due keys, unless this user may only read, then returns the records of keys. Locks
-- as `move_due`.
create or replace function requeue.look(q integer, keys bytea[], clock bigint)
returns table (
    key bytea, state smallint, dirty boolean, token bigint, owner text, delay bigint,
    failures integer, deliveries integer
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    if requeue.may_write() then
        perform requeue.move_due(q, at, 0, 500);
    end if;
    return query
        select i.key, i.state, i.dirty, i.token, i.owner, i.delayed_until - at,
            i.failures, i.deliveries
        from requeue.item i
        where i.queue = q and i.key = any (keys);
end
$$;
