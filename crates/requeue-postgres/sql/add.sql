-- Adds keys, each now (0) or after a delay. The keys are distinct and sorted, so that two
-- batches cannot wait for each other; `ords` are their places in the batch, with the ranks
-- of their priorities, and `ranked` says whether one of those is not 0.
--
-- It always locks the row of a key, also where nothing changes: otherwise a key that is
-- ready could be processed and gone before the transaction of its producer is seen. Where
-- nothing changes, the row is not written.
--
-- The first statement does what is usual, and leaves keys that are dead, or that have or
-- get another priority than 0, to `add_limited`. It tells of the former. There are none of
-- the latter unless the queue says so by now: who gives one its priority notes that with it.
--
-- Answers for those keys that were changed: the state they are in, and how long they were
-- told to wait. Of a key that comes twice, the second counts.
create or replace function requeue.add_keys(
    q integer, keys bytea[], ords bigint[], ranked boolean, delays bigint[],
    revive_after bigint, clock bigint,
    out changed bytea[], out states smallint[], out waits bigint[]
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
    more record;
begin
    with added as (
        insert into requeue.item as i (queue, key, seq, state, since, wake_at)
        select q, a.key, place + a.ord,
            case a.delay when 0 then 1 else 0 end,
            case a.delay when 0 then at end,
            case a.delay when 0 then null else at + a.delay end
        from unnest(keys, ords, delays) a (key, ord, delay)
        on conflict (queue, key) do update set
            state = case i.state when 0 then excluded.state else i.state end,
            dirty = i.dirty or i.state = 2 and excluded.state = 1,
            seq = case i.state when 0 then excluded.seq else i.seq end,
            since = case i.state when 0 then excluded.since else i.since end,
            wake_at = case i.state when 3 then null
                else coalesce(excluded.wake_at, i.wake_at) end
        where i.state = 3
            or requeue.rank(i.seq | excluded.seq) = 0 and i.planned is null
                and (excluded.state = 1 and (i.state = 0 or i.state = 2 and not i.dirty)
                    or excluded.wake_at < coalesce(i.wake_at, 9223372036854775807))
        returning i.key, i.state, i.wake_at
    )
    select array_agg(a.key), array_agg(a.state), array_agg(a.wake_at - at)
    into changed, states, waits
    from added a;

    if ranked then
        perform requeue.note_ranked(q);
    end if;
    if (3 = any (states)) is not true and (
        cardinality(changed) = cardinality(keys)
        or pg_sequence_last_value('requeue.ranked') is null
    ) then
        return;
    end if;
    if 3 = any (states) or (select u.ranked from requeue.queue u where u.id = q) then
        select l.* into more
        from (
            select array_agg(a.key), array_agg(a.ord), array_agg(a.delay)
            from unnest(keys, ords, delays) a (key, ord, delay)
            where not exists (
                select from unnest(changed, states) c (key, state)
                where c.key = a.key and c.state <> 3
            )
        ) a (keys, ords, delays)
        cross join lateral requeue.add_limited(
            q, a.keys, a.ords, false, a.delays, a.delays, null, null, revive_after, at,
            0, place
        ) l;
        changed := changed || more.changed;
        states := states || more.states;
        waits := waits || more.waits;
    end if;
end
$$;

-- The same for keys of which most probably none is there, as in a batch that lists what is
-- new: they are written without a look for each, which is what most of an add costs. If one
-- is there, or comes there meanwhile, all of that is undone and `add_keys` has the batch.
--
-- Answers `fresh` alone if all were new. What it undoes it has locked in the order of keys,
-- and holds nothing of it while `add_keys` begins again.
create or replace function requeue.add_new(
    q integer, keys bytea[], ords bigint[], ranked boolean, delays bigint[],
    revive_after bigint, clock bigint,
    out changed bytea[], out states smallint[], out waits bigint[], out fresh boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
begin
    insert into requeue.item (queue, key, seq, state, since, wake_at)
    select q, a.key, place + a.ord,
        case a.delay when 0 then 1 else 0 end,
        case a.delay when 0 then at end,
        case a.delay when 0 then null else at + a.delay end
    from (select unnest(keys), unnest(ords), unnest(delays)) a (key, ord, delay);
    fresh := true;
    if ranked then
        perform requeue.note_ranked(q);
    end if;
exception when unique_violation then
    select k.*, false into changed, states, waits, fresh
    from requeue.add_keys(q, keys, ords, ranked, delays, revive_after, clock) k;
end
$$;

-- Adds one key of a queue, which is made if it is not there: for any language, and inside
-- any transaction. Workers find the key within a second after the commit; to wake them,
-- call `wake` once it is committed.
create or replace function requeue.add(
    queue text, key bytea,
    delay interval default '0', revive_after interval default '1000 s',
    priority integer default 0
) returns void
language plpgsql volatile as $$
begin
    if length(key) > 1024 then
        raise exception 'the key has % bytes; the most are 1024', length(key);
    end if;
    if priority not between -128 and 127 then
        raise exception 'the priority is %; it must be from -128 to 127', priority;
    end if;
    perform requeue.add_keys(
        requeue.queue_id(queue), array[key], array[requeue.ranked(0, -priority)],
        priority <> 0, array[greatest(0, ceil(extract(epoch from delay) * 1000000))::bigint],
        greatest(0, ceil(extract(epoch from revive_after) * 1000000))::bigint, null);
end
$$;

create or replace function requeue.add(
    queue text, key text,
    delay interval default '0', revive_after interval default '1000 s',
    priority integer default 0
) returns void
language sql volatile as $$
    select requeue.add(queue, convert_to(key, 'UTF8'), delay, revive_after, priority)
$$;
