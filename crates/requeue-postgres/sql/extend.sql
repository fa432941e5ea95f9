-- Lets leases last for `duration` from now on: the places of those that were held. The
-- keys are sorted. The rows are locked first, by a statement of its own: the next one then
-- sees what somebody made of them meanwhile, and where. The owner is noted last: leases of
-- the same owner note it too, and must not wait for keys that somebody else has.
create or replace function requeue.extend(
    q integer, who text, keys bytea[], tokens bigint[], ords integer[], duration bigint,
    clock bigint
) returns integer[]
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
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
    -- Leases that were to last longer than that.
    update requeue.grants g set until = at + duration
    where g.queue = q and g.until > at + duration and exists (
        select from unnest(tokens) t (token)
        where t.token between g.first_token and g.last_token
    );
    perform requeue.hear_of(q, who, at);
    return extended;
end
$$;
