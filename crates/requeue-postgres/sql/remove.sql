-- Takes out what is planned for keys: those for which anything was. The keys are sorted.
create or replace function requeue.remove(q integer, keys bytea[]) returns bytea[]
language plpgsql volatile as $$
declare
    removed bytea[];
begin
    perform from unnest(keys) a (key)
    join requeue.item i on i.queue = q and i.key = a.key
    order by a.key for update of i;

    with changed as (
        update requeue.item i set
            state = case i.state when 1 then 0 else i.state end,
            dirty = false,
            wake_at = null
        from unnest(keys) a (key)
        where i.queue = q and i.key = a.key
            and (i.state = 1 or i.dirty or i.wake_at is not null)
        returning i.key
    )
    select array_agg(c.key) into removed from changed c;
    perform requeue.tidy(q, keys);
    return removed;
end
$$;
