-- Adds keys, each now (delay 0) or after a delay.
--
-- The keys are distinct and sorted; `ords` are their places in the batch, with the ranks of
-- their priorities in front, and `ranked` says whether any of those is not 0. With
-- `expect_new` the keys are first inserted as if none existed, which saves half the cost.
-- If one exists, or appears meanwhile, that insert is undone.
--
-- Locks: the rows of the keys, in key order. A key that is ready already is locked too,
-- although nothing changes: otherwise a worker could finish it on the old data before the
-- producer's transaction commits. A row that does not change is not written. Then, for
-- priorities other than 0, the locks of `note_ranked`.
--
-- Returns `all_new` if the first insert succeeded. Otherwise, for each key that changed,
-- its state and its delay. A key may appear twice; the second entry counts.
create or replace function requeue.add_keys(
    q integer, keys bytea[], ords bigint[], ranked boolean, delays bigint[],
    revive_after bigint, clock bigint, expect_new boolean default false,
    out changed bytea[], out states smallint[], out waits bigint[], out all_new boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.micros(clock);
    place bigint := requeue.places();
    more record;
begin
    all_new := false;
    if expect_new then
        begin
            insert into requeue.item (queue, key, seq, state, since, wake_at)
            select q, a.key, place + a.ord,
                case a.delay when 0 then 1 else 0 end,
                case a.delay when 0 then at end,
                case a.delay when 0 then null else at + a.delay end
            from (select unnest(keys), unnest(ords), unnest(delays)) a (key, ord, delay);
            all_new := true;
        exception when unique_violation then
            -- The row locks are released with the insert, and are taken again below.
        end;
    end if;
    if not all_new then
        -- Does all but two things, which are left to `add_limited`: keys that are dead, and
        -- keys that have or get another priority than 0.
        with added as (
            insert into requeue.item as i (queue, key, seq, state, since, wake_at)
            select q, a.key, place + a.ord,
                case a.delay when 0 then 1 else 0 end,
                case a.delay when 0 then at end,
                case a.delay when 0 then null else at + a.delay end
            from (select unnest(keys), unnest(ords), unnest(delays)) a (key, ord, delay)
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
    end if;

    if ranked then
        perform requeue.note_ranked(q);
    end if;
    if all_new or (3 = any (states)) is not true and (
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
