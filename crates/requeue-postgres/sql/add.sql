-- Adds keys, each now (delay 0) or after a delay.
--
-- The keys are distinct and sorted. `seqs` are their positions in the batch with their
-- priorities, and `has_priorities` says whether any of those is not 0. With `expect_new` the
-- keys are first inserted as if none existed, which saves half the cost. If one exists, or
-- appears meanwhile, that insert is undone.
--
-- Locks: the rows of the keys, in key order. A ready key is locked too, although nothing
-- changes: otherwise a worker could finish it on the old data before the producer's
-- transaction commits. Unchanged rows are not written. Then, for priorities other than 0,
-- the locks of `mark_priorities`.
--
-- Returns `all_new` if the first insert succeeded. Otherwise, for each key that changed,
-- its state and its delay. A key may appear twice; the second entry counts.
create or replace function requeue.add_keys(
    q integer, keys bytea[], seqs bigint[], has_priorities boolean, delays bigint[],
    revive_after bigint, clock bigint, expect_new boolean default false,
    out changed bytea[], out states smallint[], out waits bigint[], out all_new boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    pos bigint := requeue.next_position();
    more record;
    ready bigint;
    delayed bigint;
    dirty bigint;
begin
    all_new := false;
    if expect_new then
        begin
            insert into requeue.item (queue, key, seq, state, since, delayed_until)
            select q, a.key, pos + a.seq,
                case a.delay when 0 then 1 else 0 end,
                case a.delay when 0 then at end,
                case a.delay when 0 then null else at + a.delay end
            from (select unnest(keys), unnest(seqs), unnest(delays)) a (key, seq, delay);
            all_new := true;
            ready := cardinality(array_positions(delays, 0));
            perform requeue.record_counts(
                q, ready, cardinality(keys) - ready, 0, 0, 0, 0);
        exception when unique_violation then
            -- The rollback releases the locks of the insert. They are taken again below.
        end;
    end if;
    if not all_new then
        -- Leaves two kinds of keys to `add_rate_limited`: dead keys, and keys that have or
        -- get a priority other than 0. It reports the dead ones.
        with added as (
            insert into requeue.item as i (queue, key, seq, state, since, delayed_until)
            select q, a.key, pos + a.seq,
                case a.delay when 0 then 1 else 0 end,
                case a.delay when 0 then at end,
                case a.delay when 0 then null else at + a.delay end
            from (select unnest(keys), unnest(seqs), unnest(delays)) a (key, seq, delay)
            on conflict (queue, key) do update set
                state = case i.state when 0 then excluded.state else i.state end,
                dirty = i.dirty or i.state = 2 and excluded.state = 1,
                seq = case i.state when 0 then excluded.seq else i.seq end,
                since = case i.state when 0 then excluded.since else i.since end,
                delayed_until = case i.state when 3 then null
                    else coalesce(excluded.delayed_until, i.delayed_until) end,
                before_add = i.state + case when i.delayed_until is null then 0 else 4 end
                    + case when i.dirty then 8 else 0 end
            where i.state = 3
                or not requeue.has_priority(i.seq | excluded.seq)
                    and i.pending_priority is null
                    and (excluded.state = 1 and (i.state = 0 or i.state = 2 and not i.dirty)
                        or excluded.delayed_until
                            < coalesce(i.delayed_until, 9223372036854775807))
            returning i.key, i.state, i.delayed_until, i.dirty,
                coalesce(i.before_add, 0) as before
        )
        select array_agg(a.key), array_agg(a.state), array_agg(a.delayed_until - at),
            sum((a.state = 1)::integer - (a.before & 3 = 1)::integer),
            sum((a.delayed_until is not null)::integer - (a.before & 4) / 4),
            sum(a.dirty::integer - (a.before & 8) / 8)
        into changed, states, waits, ready, delayed, dirty
        from added a;
        if changed is not null then
            perform requeue.record_counts(q, ready, delayed, 0, dirty, 0, 0);
        end if;
    end if;

    if has_priorities then
        perform requeue.mark_priorities(q);
    end if;
    -- Without the sequence's value no queue has priorities. An add that sets one marks its
    -- queue before it commits, so an add that waited for it sees the mark.
    if all_new or (3 = any (states)) is not true and (
        cardinality(changed) = cardinality(keys)
        or pg_sequence_last_value('requeue.any_priorities') is null
    ) then
        return;
    end if;
    if 3 = any (states) or (select u.has_priorities from requeue.queue u where u.id = q) then
        select l.* into more
        from (
            select array_agg(a.key), array_agg(a.seq), array_agg(a.delay)
            from unnest(keys, seqs, delays) a (key, seq, delay)
            where not exists (
                select from unnest(changed, states) c (key, state)
                where c.key = a.key and c.state <> 3
            )
        ) a (keys, seqs, delays)
        cross join lateral requeue.add_rate_limited(
            q, a.keys, a.seqs, false, a.delays, a.delays, null, null, revive_after, at,
            0, pos
        ) l;
        changed := changed || more.changed;
        states := states || more.states;
        waits := waits || more.waits;
    end if;
end
$$;

-- Adds one key to a queue, and creates the queue if it does not exist. For any language,
-- inside any transaction. Workers find the key within a second of the commit; call `wake`
-- after the commit to notify them at once.
--
-- Locks as `add_keys`.
create or replace function requeue.add(
    queue text, key bytea,
    delay interval default '0', revive_after interval default '1000 s',
    priority integer default 0
) returns void
language plpgsql volatile as $$
begin
    if length(key) > 1024 then
        raise exception 'the key has % bytes; at most 1024 are allowed', length(key);
    end if;
    if priority not between -128 and 127 then
        raise exception 'the priority is %; it must be from -128 to 127', priority;
    end if;
    perform requeue.add_keys(
        requeue.queue_id(queue), array[key], array[requeue.make_seq(priority, 0)],
        priority <> 0, array[greatest(0, ceil(extract(epoch from delay) * 1000000))::bigint],
        greatest(0, ceil(extract(epoch from revive_after) * 1000000))::bigint, null);
end
$$;

-- Adds one key that is text, in UTF-8.
create or replace function requeue.add(
    queue text, key text,
    delay interval default '0', revive_after interval default '1000 s',
    priority integer default 0
) returns void
language sql volatile as $$
    select requeue.add(queue, convert_to(key, 'UTF8'), delay, revive_after, priority)
$$;
