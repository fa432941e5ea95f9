-- Priorities of adds. A pending add has the highest priority of the adds that it combines.

-- Records that a key of the queue has a priority other than 0.
--
-- Locks: the priorities of the queue (advisory, shared), then the row of the queue if that
-- was not recorded. The first lock keeps `unmark_priorities` from running before the key is
-- visible to it.
create or replace function requeue.mark_priorities(q integer) returns void
language sql volatile as $$
    select pg_advisory_xact_lock_shared('requeue.any_priorities'::regclass::integer, q);
    select setval('requeue.any_priorities', 1);
    update requeue.queue set has_priorities = true where id = q and not has_priorities
$$;

-- Records that no key of the queue has a priority other than 0, if that is true and the
-- queue has fewer than 1000 keys.
--
-- Locks: the priorities of the queue (advisory, exclusive) and the row of the queue. Gives
-- up instead of waiting.
create or replace function requeue.unmark_priorities(q integer) returns void
language plpgsql volatile as $$
begin
    if not pg_try_advisory_xact_lock('requeue.any_priorities'::regclass::integer, q) then
        return;
    end if;
    update requeue.queue u set has_priorities = false
    from (select ctid as tid from requeue.queue where id = q for update skip locked) f
    where u.ctid = f.tid and (
        select count(*) < 1000 and coalesce(
            bool_and(not requeue.has_priority(i.seq) and i.pending_priority is null), true)
        from (
            select j.seq, j.pending_priority from requeue.item j
            where j.queue = q limit 1000
        ) i
    );
end
$$;

-- Returns the priorities that keys will have after an add with those in `seqs`. The caller
-- has locked the rows.
create or replace function requeue.merged_priorities(
    q integer, keys bytea[], seqs bigint[]
) returns smallint[]
language plpgsql volatile as $$
begin
    return array(
        select greatest(
            requeue.priority_of(a.seq),
            case when i.state = 1 or i.dirty or i.delayed_until is not null
                then coalesce(i.pending_priority, requeue.priority_of(i.seq)) end)
        from unnest(keys, seqs) a (key, seq) cross join lateral (
            select j.state, j.dirty, j.delayed_until, j.pending_priority, j.seq
            from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    );
end
$$;

-- Sets the priorities of keys that were added. A ready key whose priority changes goes to
-- the end of its new priority. The caller has locked the rows.
create or replace function requeue.set_priorities(
    q integer, keys bytea[], seqs bigint[], priorities smallint[], pos bigint
) returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select i.tid, i.state, a.seq, a.priority, i.own
        from unnest(keys, seqs, priorities) a (key, seq, priority) cross join lateral (
            select j.ctid as tid, j.state, j.pending_priority,
                requeue.priority_of(j.seq) as own
            from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
        where a.priority <> coalesce(i.pending_priority, i.own)
    )
    update requeue.item i set
        seq = case f.state
            when 2 then i.seq
            else requeue.make_seq(f.priority, pos + f.seq) end,
        pending_priority = case f.state when 2 then nullif(f.priority, f.own) end
    from found f
    where i.ctid = f.tid;
end
$$;
