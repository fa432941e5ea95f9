-- Lets leases last for `duration` from now on: the places of those that were held. The
-- keys are sorted.
create or replace function requeue.extend(
    q integer, who text, keys bytea[], tokens bigint[], ords integer[], duration bigint,
    clock bigint
) returns integer[]
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    extended integer[];
begin
    perform requeue.hear_of(q, who, at);
    update requeue.item i set lease_until = at + duration
    from unnest(keys, tokens) a (key, token)
    where i.queue = q and i.key = a.key and i.state = 2 and i.token = a.token;

    select array_agg(a.ord) into extended
    from unnest(keys, tokens, ords) a (key, token, ord)
    join requeue.item i on i.queue = q and i.key = a.key
    where i.state = 2 and i.token = a.token;
    return extended;
end
$$;
