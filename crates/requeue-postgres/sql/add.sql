-- Adds keys, each now (0) or after a delay. The keys are distinct and sorted, so that two
-- batches cannot wait for each other; `ords` are their places in the batch.
--
-- It always locks the row of a key, also where nothing changes: otherwise a key that is
-- ready could be processed and gone before the transaction of its producer is seen. Where
-- nothing changes, the row is not written.
--
-- Answers for those keys that were changed: the state they are in, and how long they were
-- told to wait.
create or replace function requeue.add_keys(
    q integer, keys bytea[], ords integer[], delays bigint[], revive_after bigint,
    clock bigint,
    out changed bytea[], out states smallint[], out waits bigint[]
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
begin
    with added as (
        insert into requeue.item as i (queue, key, seq, state, since, wake_at)
        select q, a.key, place + a.ord,
            case a.delay when 0 then 1 else 0 end,
            case a.delay when 0 then at end,
            case a.delay when 0 then null else at + a.delay end
        from unnest(keys, ords, delays) a (key, ord, delay)
        on conflict (queue, key) do update set
            state = case
                when i.state = 0 then excluded.state
                when i.state = 3 and revive_after > 0 then 0
                when i.state = 3 then excluded.state
                else i.state end,
            dirty = i.dirty or i.state = 2 and excluded.state = 1,
            seq = case when i.state in (0, 3) then excluded.seq else i.seq end,
            since = case
                when i.state = 3 and revive_after > 0 then null
                when i.state in (0, 3) then excluded.since
                else i.since end,
            wake_at = case
                when i.state <> 3 then coalesce(excluded.wake_at, i.wake_at)
                when revive_after > 0 then greatest(excluded.wake_at, at + revive_after)
                else excluded.wake_at end,
            failures = case i.state when 3 then 0 else i.failures end,
            deliveries = case i.state when 3 then 0 else i.deliveries end,
            error = case i.state when 3 then null else i.error end,
            reason = null
        where i.state = 3
            or excluded.state = 1 and (i.state = 0 or i.state = 2 and not i.dirty)
            or excluded.wake_at < coalesce(i.wake_at, 9223372036854775807)
        returning i.key, i.state, i.wake_at
    )
    select array_agg(a.key), array_agg(a.state), array_agg(a.wake_at - at)
    into changed, states, waits
    from added a;
end
$$;

-- Adds one key of a queue, which is made if it is not there: for any language, and inside
-- any transaction. Workers find the key within a second after the commit; to wake them,
-- call `wake` once it is committed.
create or replace function requeue.add(
    queue text, key bytea,
    delay interval default '0', revive_after interval default '1000 s'
) returns void
language plpgsql volatile as $$
begin
    if length(key) > 1024 then
        raise exception 'the key has % bytes; the most are 1024', length(key);
    end if;
    perform requeue.add_keys(
        requeue.queue_id(queue), array[key], array[0],
        array[greatest(0, ceil(extract(epoch from delay) * 1000000))::bigint],
        greatest(0, ceil(extract(epoch from revive_after) * 1000000))::bigint, null);
end
$$;

create or replace function requeue.add(
    queue text, key text,
    delay interval default '0', revive_after interval default '1000 s'
) returns void
language sql volatile as $$
    select requeue.add(queue, convert_to(key, 'UTF8'), delay, revive_after)
$$;
