-- Extends leases to `duration` from now, and records that the owner is alive. The keys are
-- sorted, and the other arrays are parallel to them.
--
-- Locks: the rows of the keys, in key order, by a separate statement, so that the next
-- one sees the current rows. Then rows of `lease_batch`, and last the row of the owner: a
-- lease of the same owner locks that too, and must not wait for a locked key.
--
-- Returns the `ords` of the leases that were held.
create or replace function requeue.extend(
    q integer, who text, keys bytea[], tokens bigint[], ords integer[], duration bigint,
    clock bigint
) returns integer[]
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    extended integer[];
begin
    perform requeue.lock_keys(q, keys);
    with found as materialized (
        select a.token, a.ord, i.tid
        from unnest(keys, tokens, ords) a (key, token, ord)
        cross join lateral (
            select j.ctid as tid, j.state, j.token from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
        where i.state = 2 and i.token = a.token
    ), longer as (
        update requeue.item i set lease_until = at + duration
        from found f where i.ctid = f.tid
    )
    select array_agg(f.ord) into extended from found f;
    -- Batches of leases that were to last longer.
    update requeue.lease_batch b set until = at + duration
    where b.queue = q and b.until > at + duration and exists (
        select from unnest(tokens) t (token)
        where t.token between b.first_token and b.last_token
    );
    perform requeue.record_owner(q, who, at);
    return extended;
end
$$;
