-- The functions of version 6, as that version of the program created them.

create or replace function requeue.now_micros(clock bigint) returns bigint
language sql volatile parallel safe as $$
    select coalesce(clock, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

create or replace function requeue.next_position() returns bigint
language sql volatile as $$
    select nextval('requeue.position') << 12
$$;

create or replace function requeue.priority_of(seq bigint) returns smallint
language sql immutable parallel safe as $$
    select (-(seq >> 55))::smallint
$$;

create or replace function requeue.has_priority(seq bigint) returns boolean
language sql immutable parallel safe as $$
    select seq >> 55 <> 0
$$;

create or replace function requeue.position_of(seq bigint) returns bigint
language sql immutable parallel safe as $$
    select seq & ((1::bigint << 55) - 1)
$$;

create or replace function requeue.make_seq(priority integer, pos bigint) returns bigint
language sql immutable parallel safe as $$
    select requeue.position_of(pos) | (-priority::bigint << 55)
$$;

create or replace function requeue.next_tokens(n integer, at bigint) returns bigint
language plpgsql volatile as $$
declare
    sequence regclass := 'requeue.token';
    locked boolean := pg_advisory_lock(sequence::integer, 1) is not null;
    first bigint := greatest(pg_sequence_last_value(sequence) + 1, at);
    last bigint := setval(sequence, first + n - 1);
    unlocked boolean := pg_advisory_unlock(sequence::integer, 1);
begin
    return first;
end
$$;

create or replace function requeue.last_leased_seq(q integer) returns bigint
language sql stable as $$
    select coalesce(max(b.last_seq), 0) from requeue.lease_batch b where b.queue = q
$$;

create or replace function requeue.lock_keys(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    perform from unnest(keys) a (key) cross join lateral (
        select i.key from requeue.item i
        where i.queue = q and i.key = a.key offset 0 for update
    ) i;
end
$$;

create or replace function requeue.delete_empty(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select i.tid from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    )
    delete from requeue.item i using found f
    where i.ctid = f.tid and i.state + 0 = 0 and i.delayed_until is null
        and i.failures + 0 = 0;
end
$$;

create or replace function requeue.record_owner(q integer, who text, at bigint)
returns void
language plpgsql volatile as $$
begin
    if exists (
        select from requeue.owner o
        where o.queue = q and o.name = who and o.seen between at - 999999 and at
    ) then
        return;
    end if;
    insert into requeue.owner values (q, who, at)
    on conflict (queue, name) do update set seen = excluded.seen;
    delete from requeue.owner o where o.queue = q and o.seen < at - 2 * 86400000000;
end
$$;

create or replace function requeue.queue_id(queue_name text) returns integer
language plpgsql volatile as $$
declare
    q integer;
begin
    loop
        select id into q from requeue.queue where name = queue_name;
        if found then
            return q;
        end if;
        insert into requeue.queue (name) values (queue_name) on conflict do nothing;
    end loop;
end
$$;

create or replace function requeue.reserve_rate(
    q integer, n bigint, pause bigint, burst bigint, at bigint
) returns bigint
language sql volatile as $$
    update requeue.queue
    set arrival = least(greatest(arrival, at) + n::numeric * pause, 1::bigint << 62)
    where id = q
    returning greatest(
        arrival - (n - 1)::numeric * pause - at - burst::numeric * pause,
        -(1::bigint << 62))::bigint
$$;

create or replace function requeue.backoff_delay(
    base bigint, longest bigint, failures integer
) returns bigint
language sql immutable parallel safe as $$
    select case
        when base = 0 or longest = 0 then 0
        when failures >= 63 or base > (longest >> least(failures, 62)) then longest
        else base << failures
    end
$$;
create or replace function requeue.move_due(
    q integer, at bigint, from_time bigint, most integer
) returns bigint
language plpgsql volatile as $$
declare
    rows tid[];
    pos bigint;
begin
    rows := array(
        select i.ctid from requeue.item i
        where i.queue = q and i.delayed_until between from_time and at
        order by i.delayed_until, i.seq limit most
        for update skip locked
    );
    if cardinality(rows) = 0 then
        return 0;
    end if;
    pos := requeue.next_position();
    update requeue.item i set
        delayed_until = null,
        state = case i.state when 0 then 1 else i.state end,
        dirty = i.state = 2,
        since = case i.state when 0 then at else i.since end,
        seq = case i.state
            when 0 then requeue.make_seq(requeue.priority_of(i.seq), pos + r.n)
            else i.seq end
    from unnest(rows) with ordinality r (tid, n)
    where i.ctid = r.tid;
    return cardinality(rows);
end
$$;
create or replace function requeue.next_expiry(q integer, from_time bigint)
returns bigint
language plpgsql volatile as $$
begin
    return min(case b.n when 5 then b.until else (
        select min(i.lease_until) from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq between b.first_seq and b.last_seq
            and i.state = 2 and i.token between b.first_token and b.last_token
    ) end)
    from (
        select *, row_number() over (order by until) as n
        from requeue.lease_batch where queue = q and until >= from_time
        order by until limit 5
    ) b;
end
$$;

create or replace function requeue.return_expired(
    q integer, max_deliveries integer, at bigint, from_time bigint,
    out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    batches tid[];
    rows tid[];
    pos bigint;
begin
    returned := 0;
    dead := 0;
    batches := array(
        select b.ctid from requeue.lease_batch b
        where b.queue = q and b.until between from_time and at
        order by b.until limit 500
        for update skip locked
    );
    if cardinality(batches) = 0 then
        return;
    end if;
    rows := array(
        select i.tid
        from unnest(batches) c (tid) join requeue.lease_batch b on b.ctid = c.tid
        cross join lateral (
            select j.ctid as tid, j.lease_until, j.key from requeue.item j
            where j.queue = q and j.since is not null and j.reason is null
                and j.seq between b.first_seq and b.last_seq
                and j.state = 2 and j.token between b.first_token and b.last_token
                and j.lease_until <= at
            offset 0 for update skip locked
        ) i
        order by i.lease_until, i.key limit 500
    );
    if cardinality(rows) > 0 then
        pos := requeue.next_position();
        with moved as (
            update requeue.item i set
                state = case when i.deliveries >= max_deliveries then 3 else 1 end,
                reason = case when i.deliveries >= max_deliveries then
                    format('its lease expired %s %s in a row', i.deliveries,
                        case i.deliveries when 1 then 'time' else 'times' end) end,
                delayed_until = case
                    when i.deliveries >= max_deliveries then null
                    else i.delayed_until end,
                dirty = false,
                lease_until = null,
                since = at,
                seq = requeue.make_seq(
                    greatest(requeue.priority_of(i.seq), i.pending_priority), pos + r.n),
                pending_priority = null
            from unnest(rows) with ordinality r (tid, n)
            where i.ctid = r.tid
            returning i.state
        )
        select count(*) filter (where state = 1), count(*) filter (where state = 3)
        into returned, dead
        from moved;
    end if;
    perform requeue.refresh_lease_batches(q, batches);
end
$$;

create or replace function requeue.refresh_lease_batches(q integer, batches tid[])
returns void
language plpgsql volatile as $$
begin
    with found as materialized (
        select b.ctid as tid, (
            select min(i.lease_until) from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null
                and i.seq between b.first_seq and b.last_seq
                and i.state = 2 and i.token between b.first_token and b.last_token
        ) as until
        from unnest(batches) c (tid) join requeue.lease_batch b on b.ctid = c.tid
    ), gone as (
        delete from requeue.lease_batch b using found f
        where b.ctid = f.tid and f.until is null
    )
    update requeue.lease_batch b set until = f.until
    from found f where b.ctid = f.tid and f.until > b.until;
end
$$;

create or replace function requeue.expire(
    q integer, max_deliveries integer, clock bigint,
    out due bigint, out returned bigint, out dead bigint
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    due := requeue.move_due(q, at, 0, 500);
    select l.returned, l.dead into returned, dead
    from requeue.return_expired(q, max_deliveries, at, 0) l;
end
$$;

create or replace function requeue.mark_priorities(q integer) returns void
language sql volatile as $$
    select pg_advisory_xact_lock_shared('requeue.any_priorities'::regclass::integer, q);
    select setval('requeue.any_priorities', 1);
    update requeue.queue set has_priorities = true where id = q and not has_priorities
$$;

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
        exception when unique_violation then
        end;
    end if;
    if not all_new then
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
                    else coalesce(excluded.delayed_until, i.delayed_until) end
            where i.state = 3
                or not requeue.has_priority(i.seq | excluded.seq)
                    and i.pending_priority is null
                    and (excluded.state = 1 and (i.state = 0 or i.state = 2 and not i.dirty)
                        or excluded.delayed_until
                            < coalesce(i.delayed_until, 9223372036854775807))
            returning i.key, i.state, i.delayed_until
        )
        select array_agg(a.key), array_agg(a.state), array_agg(a.delayed_until - at)
        into changed, states, waits
        from added a;
    end if;

    if has_priorities then
        perform requeue.mark_priorities(q);
    end if;
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

create or replace function requeue.add(
    queue text, key text,
    delay interval default '0', revive_after interval default '1000 s',
    priority integer default 0
) returns void
language sql volatile as $$
    select requeue.add(queue, convert_to(key, 'UTF8'), delay, revive_after, priority)
$$;
create or replace function requeue.add_rate_limited(
    q integer, keys bytea[], seqs bigint[], has_priorities boolean, bases bigint[],
    limits bigint[], pause bigint, burst bigint, revive_after bigint, clock bigint,
    counted integer default 1, pos bigint default null,
    out changed bytea[], out states smallint[], out waits bigint[]
)
language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    at bigint := requeue.now_micros(clock);
    priorities smallint[];
    shared bigint;
begin
    pos := coalesce(pos, requeue.next_position());
    insert into requeue.item as i (queue, key, seq, state)
    select q, k.key, pos, 0 from unnest(keys) k (key)
    on conflict (queue, key) do update set seq = i.seq where false;
    if has_priorities then
        perform requeue.mark_priorities(q);
    end if;
    if pg_sequence_last_value('requeue.any_priorities') is not null then
        priorities := requeue.merged_priorities(q, keys, seqs);
    end if;
    if pause is not null then
        shared := requeue.reserve_rate(q, cardinality(keys), pause, burst, at);
    end if;

    with asked as (
        select i.tid, i.state, i.dirty, i.delayed_until, a.seq, greatest(
                requeue.backoff_delay(a.base, a.longest,
                    case i.state when 3 then 0 else i.failures end),
                shared + pause
                    * (row_number() over (order by requeue.position_of(a.seq)) - 1),
                case i.state when 3 then revive_after end, 0
            ) as delay
        from unnest(keys, seqs, bases, limits) a (key, seq, base, longest)
        cross join lateral (
            select j.ctid as tid, j.state, j.dirty, j.delayed_until, j.failures
            from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    ), judged as materialized (
        select a.tid, a.seq, a.delay, case
                when a.delay > 0 then
                    a.delayed_until is null or a.delayed_until > at + a.delay
                else a.state in (0, 3) or a.state = 2 and not a.dirty end as changes
        from asked a
    ), added as (
        update requeue.item i set
            state = case
                when i.state in (0, 3) and j.delay = 0 then 1
                when i.state = 3 then 0
                else i.state end,
            dirty = i.dirty or i.state = 2 and j.delay = 0,
            seq = case when i.state in (0, 3) and j.changes then pos + j.seq else i.seq end,
            since = case
                when i.state in (0, 3) and j.delay = 0 then at
                when i.state = 3 then null
                else i.since end,
            delayed_until = case
                when j.delay = 0 then i.delayed_until
                else least(i.delayed_until, at + j.delay) end,
            failures = case i.state when 3 then counted else i.failures + counted end,
            deliveries = case i.state when 3 then 0 else i.deliveries end,
            error = case i.state when 3 then null else i.error end,
            reason = null
        from judged j
        where i.ctid = j.tid and (j.changes or counted > 0)
        returning i.key, j.delay, case
            when not j.changes then -1
            when j.delay > 0 then 0
            else i.state end as state
    )
    select array_agg(a.key), array_agg(a.state::smallint), array_agg(a.delay)
    into changed, states, waits
    from added a;

    if priorities is not null then
        perform requeue.set_priorities(q, keys, seqs, priorities, pos);
    end if;
end
$$;
create or replace function requeue.record_idle(q integer, at bigint) returns boolean
language plpgsql volatile as $$
declare
    before bigint;
    has_priorities boolean;
begin
    select u.idle_at, u.has_priorities into before, has_priorities
    from requeue.queue u where u.id = q;
    if before between at - 500000 and at then
        return false;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    update requeue.queue u set idle_at = at
    from (select ctid as tid from requeue.queue where id = q for update skip locked) f
    where u.ctid = f.tid;
    if has_priorities and before / 60000000 <> at / 60000000 then
        perform requeue.unmark_priorities(q);
    end if;
    return before not between at - 2000000 and at;
end
$$;

create or replace function requeue.notify_workers(q integer, clock bigint) returns boolean
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    if not exists (
        select from requeue.queue u where u.id = q and u.idle_at between at - 2000000 and at
    ) then
        return false;
    end if;
    return set_config('synchronous_commit', 'off', true) = 'off'
        and pg_notify('requeue.' || q, '') is not null;
end
$$;

create or replace function requeue.wake(queue text) returns boolean
language sql volatile as $$
    select requeue.notify_workers(requeue.queue_id(queue), null)
$$;

create or replace procedure requeue.add_and_wake(
    q integer, keys bytea[], seqs bigint[], has_priorities boolean, delays bigint[],
    revive_after bigint, clock bigint, expect_new boolean,
    inout changed bytea[], inout states smallint[], inout waits bigint[],
    inout all_new boolean, inout notified boolean
)
language plpgsql as $$
begin
    select k.* into changed, states, waits, all_new
    from requeue.add_keys(
        q, keys, seqs, has_priorities, delays, revive_after, clock, expect_new) k;
    notified := false;
    if all_new or changed is not null then
        commit;
        notified := requeue.notify_workers(q, clock)
            and set_config('lock_timeout', '0', true) = '0';
    end if;
end
$$;
create or replace function requeue.lock_ready(
    q integer, first bigint, last bigint, most integer
) returns tid[]
language plpgsql volatile as $$
begin
    return array(
        select i.ctid from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.state = 1 and i.seq between first and last
        order by i.seq limit most
        for update skip locked
    );
end
$$;

create or replace function requeue.lock_ready_by_priority(
    q integer, from_seq bigint, wanted integer, oldest_first boolean
) returns tid[]
language plpgsql volatile as $$
declare
    rows tid[] := requeue.lock_ready(q, -1::bigint << 63, -1, wanted);
begin
    rows := rows || requeue.lock_ready(
        q, from_seq, 9223372036854775807, wanted - cardinality(rows));
    if oldest_first and cardinality(rows) = wanted then
        return requeue.put_oldest_first(q, rows, from_seq);
    end if;
    return rows;
end
$$;

create or replace function requeue.put_oldest_first(q integer, rows tid[], from_seq bigint)
returns tid[]
language plpgsql volatile as $$
declare
    head record;
    oldest tid;
    lowest bigint := 1::bigint << 55;
    next_seq bigint := -1::bigint << 63;
    last bigint := -1;
begin
    loop
        select i.ctid as tid, i.seq into head from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.state = 1 and i.seq between next_seq and last
        order by i.seq limit 1;
        if found then
            if requeue.position_of(head.seq) < lowest then
                lowest := requeue.position_of(head.seq);
                oldest := head.tid;
            end if;
            next_seq := (head.seq >> 55) + 1 << 55;
        elsif last = -1 then
            next_seq := from_seq;
            last := 9223372036854775807;
        else
            exit;
        end if;
    end loop;
    select i.ctid into oldest from requeue.item i
    where i.ctid = oldest and i.state + 0 = 1 for update skip locked;
    if oldest is null then
        return rows;
    end if;
    return (oldest || array_remove(rows, oldest))[1:cardinality(rows)];
end
$$;

create or replace function requeue.lease(
    q integer, who text, wanted integer, duration bigint, max_deliveries integer,
    clock bigint, from_seq bigint, from_time bigint, thorough boolean,
    oldest_first boolean,
    out keys bytea[], out tokens bigint[], out deliveries integer[],
    out failures integer[], out priorities smallint[], out waited bigint[],
    out more_in bigint, out paused boolean, out moved boolean,
    out last_seq bigint, out swept_until bigint, out spent bigint, out look_again boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    begun timestamptz := clock_timestamp();
    is_known boolean;
    has_priorities boolean;
    idle_at bigint;
    next_delay bigint;
    next_lease bigint;
    most integer;
    due bigint;
    rows tid[] := '{}';
    number integer;
    first_token bigint;
    first_seq bigint;
    leased tid[];
begin
    swept_until := at;
    moved := false;
    look_again := false;
    select u.paused, u.idle_at, u.has_priorities,
        exists (
            select from requeue.owner o
            where o.queue = q and o.name = who and o.seen between at - 999999 and at
        ),
        (select min(i.delayed_until) from requeue.item i
            where i.queue = q and i.delayed_until >= from_time),
        (select min(b.until) from requeue.lease_batch b
            where b.queue = q and b.until >= from_time)
    into paused, idle_at, has_priorities, is_known, next_delay, next_lease
    from requeue.queue u where u.id = q;
    if not is_known then
        perform requeue.record_owner(q, who, at);
    end if;
    if least(next_delay, next_lease) <= at then
        swept_until := null;
    end if;
    if next_delay <= at then
        most := case when wanted < 100 then 500 else least(wanted, 500) end;
        due := requeue.move_due(q, at, from_time, most);
        moved := due > 0;
        next_delay := case when due = most then at else (
            select min(i.delayed_until) from requeue.item i
            where i.queue = q and i.delayed_until > at
        ) end;
    end if;
    if next_lease <= at then
        select moved or l.returned > 0 into moved
        from requeue.return_expired(q, max_deliveries, at, from_time) l;
        select min(b.until) into next_lease from requeue.lease_batch b
        where b.queue = q and b.until >= from_time;
    end if;

    if not paused and wanted > 0 then
        if has_priorities then
            rows := requeue.lock_ready_by_priority(q, from_seq, wanted, oldest_first);
        else
            rows := array(
                select i.ctid from requeue.item i
                where i.queue = q and i.since is not null and i.reason is null
                    and i.state = 1 and i.seq >= from_seq
                order by i.seq limit wanted
                for update skip locked
            );
        end if;
        if cardinality(rows) = 0 and thorough and from_seq > 0 then
            rows := requeue.lock_ready(q, -1::bigint << 63, from_seq - 1, wanted);
        end if;
    end if;

    number := cardinality(rows);
    if number > 0 then
        first_token := requeue.next_tokens(number, at);
        with granted as (
            update requeue.item i set
                state = 2,
                token = first_token + r.n,
                owner = who,
                lease_until = at + duration,
                deliveries = i.deliveries + 1
            from (select unnest(rows), generate_series(0, number - 1)) r (tid, n)
            where i.ctid = r.tid
            returning i.key, i.token, i.deliveries, i.failures, i.seq, i.since, i.ctid as tid
        )
        select array_agg(g.key), array_agg(g.token), array_agg(g.deliveries),
            array_agg(g.failures), array_agg(g.tid), array_agg(at - g.since),
            min(g.seq), max(g.seq)
        into keys, tokens, deliveries, failures, leased, waited, first_seq, last_seq
        from granted g;
        if not requeue.has_priority(first_seq | last_seq) then
            insert into requeue.lease_batch values (
                q, at + duration, first_token, first_token + number - 1, first_seq, last_seq);
        else
            insert into requeue.lease_batch
            select q, at + duration, first_token, first_token + number - 1,
                min(i.seq), max(i.seq)
            from unnest(leased) l (tid) join requeue.item i on i.ctid = l.tid
            group by requeue.priority_of(i.seq);
            select array_agg(requeue.priority_of(i.seq) order by l.n),
                max(i.seq) filter (where not requeue.has_priority(i.seq))
            into priorities, last_seq
            from unnest(leased) with ordinality l (tid, n)
            join requeue.item i on i.ctid = l.tid;
        end if;
    end if;

    if number = wanted or paused then
        if exists (
            select from requeue.item i
            where i.queue = q and i.since is not null and i.reason is null
                and i.state = 1 and i.seq >= coalesce(last_seq, from_seq)
        ) then
            next_delay := at;
        elsif has_priorities then
            if exists (
                select from requeue.item i
                where i.queue = q and i.since is not null and i.reason is null
                    and i.state = 1 and i.seq < 0
            ) then
                next_delay := at;
            end if;
        end if;
    end if;
    if number > 0 then
        more_in := least(next_delay, next_lease, at + duration) - at;
    elsif next_lease is null then
        more_in := next_delay - at;
    else
        more_in := least(next_delay, requeue.next_expiry(q, from_time)) - at;
    end if;
    if number = 0 and not paused and idle_at not between at - 500000 and at then
        look_again := requeue.record_idle(q, at);
    end if;
    spent := extract(epoch from clock_timestamp() - begun) * 1000000;
    if clock is null then
        more_in := more_in - spent;
    end if;
end
$$;
create or replace function requeue.finish(
    q integer, keys bytea[], tokens bigint[], ords integer[], finishes text[],
    delays bigint[], limits bigint[], errors text[], pause bigint, burst bigint,
    clock bigint,
    out done integer[], out others integer[], out results text[], out waits bigint[]
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    pos bigint;
    empty_rows tid[];
    other_rows tid[];
    were_dirty boolean[];
    failed integer[];
    shared bigint;
begin
    select
        array_agg(h.tid) filter (where h.leaves_nothing),
        array_agg(h.n) filter (where h.leaves_nothing),
        array_agg(h.tid) filter (where not h.leaves_nothing),
        array_agg(h.n) filter (where not h.leaves_nothing),
        array_agg(h.dirty) filter (where not h.leaves_nothing),
        array_agg(h.failures) filter (where not h.leaves_nothing)
    into empty_rows, done, other_rows, others, were_dirty, failed
    from (
        select i.*, a.n, not i.dirty and i.delayed_until is null
            and (a.finish = 'succeed' or a.finish = 'done' and i.failures = 0)
            as leaves_nothing
        from (
            select unnest(keys), unnest(tokens), unnest(finishes),
                generate_series(1, cardinality(keys))
        ) a (key, token, finish, n)
        cross join lateral (
            select j.ctid as tid, j.dirty, j.delayed_until, j.failures from requeue.item j
            where j.queue = q and j.key = a.key and j.token = a.token and j.state + 0 = 2
            offset 0 for update
        ) i
    ) h;
    delete from requeue.item i where i.ctid = any (empty_rows);
    if others is null then
        return;
    end if;

    if pause is not null then
        shared := requeue.reserve_rate(
            q, (select count(*) from unnest(others) o (n) where finishes[o.n] = 'retry'),
            pause, burst, at);
    end if;
    pos := requeue.next_position();
    with asked as (
        select r.*, finishes[r.n] as finish, case finishes[r.n]
                when 'retry' then greatest(
                    requeue.backoff_delay(delays[r.n], limits[r.n], r.failures),
                    shared + pause * (
                        row_number() over (partition by finishes[r.n] order by ords[r.n])
                        - 1),
                    0)
                else coalesce(delays[r.n], 0) end as delay
        from unnest(other_rows, others, were_dirty, failed) r (tid, n, dirty, failures)
    ), judged as materialized (
        select a.*, case
                when a.dirty or a.finish = 'release' then 'ready'
                when a.finish = 'give_up' then 'dead'
                when a.finish in ('succeed', 'done') then 'done'
                when a.delay = 0 then 'ready'
                else 'delayed' end as result,
            a.finish in ('retry', 'retry_after') as counts,
            a.finish in ('succeed', 'requeue_after') or a.finish = 'give_up' and a.dirty
                as forgets
        from asked a
    ), finished as (
        update requeue.item i set
            state = case j.result when 'ready' then 1 when 'dead' then 3 else 0 end,
            dirty = false,
            seq = requeue.make_seq(case
                when j.result = 'dead' then 0
                when j.finish in ('succeed', 'done', 'give_up')
                    then coalesce(i.pending_priority, requeue.priority_of(i.seq))
                else greatest(requeue.priority_of(i.seq), i.pending_priority) end,
                pos + ords[j.n]),
            pending_priority = null,
            since = case when j.result in ('ready', 'dead') then at end,
            lease_until = null,
            delayed_until = case
                when j.result = 'dead' then null
                when j.delay > 0 then least(i.delayed_until, at + j.delay)
                else i.delayed_until end,
            deliveries = case
                when j.result = 'dead' then i.deliveries
                when j.finish = 'release' then i.deliveries - 1
                else 0 end,
            failures = case
                when j.counts then i.failures + 1
                when j.forgets then 0
                else i.failures end,
            error = case
                when j.counts then errors[j.n]
                when j.forgets then null
                else i.error end,
            reason = case j.result when 'dead' then coalesce(errors[j.n], '') end
        from judged j
        where i.ctid = j.tid
        returning j.n, j.result, j.delay
    )
    select array_agg(f.n), array_agg(f.result), array_agg(f.delay)
    into others, results, waits
    from finished f;
end
$$;
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
    update requeue.lease_batch b set until = at + duration
    where b.queue = q and b.until > at + duration and exists (
        select from unnest(tokens) t (token)
        where t.token between b.first_token and b.last_token
    );
    perform requeue.record_owner(q, who, at);
    return extended;
end
$$;
create or replace function requeue.lock_unheld(
    q integer, who text, keys bytea[], tokens bigint[]
) returns tid[]
language plpgsql volatile as $$
begin
    return array_agg(l.tid order by l.token) from (
        select i.ctid as tid, i.token from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_leased_seq(q) and i.state = 2 and i.owner = who
            and (i.key, i.token) not in (select * from unnest(keys, tokens))
        order by i.key for update
    ) l;
exception when lock_not_available then
    return array_agg(l.tid order by l.token) from (
        select i.ctid as tid, i.token from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_leased_seq(q) and i.state = 2 and i.owner = who
            and (i.key, i.token) not in (select * from unnest(keys, tokens))
        order by i.key for update skip locked
    ) l;
end
$$;

create or replace function requeue.reclaim(
    q integer, who text, keys bytea[], tokens bigint[], clock bigint
) returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    pos bigint := requeue.next_position();
    unheld tid[] := requeue.lock_unheld(q, who, keys, tokens);
begin
    update requeue.item i set
        state = 1,
        dirty = false,
        seq = requeue.make_seq(
            greatest(requeue.priority_of(i.seq), i.pending_priority), pos + l.n),
        pending_priority = null,
        since = at,
        lease_until = null,
        deliveries = i.deliveries - 1
    from unnest(unheld) with ordinality l (tid, n)
    where i.ctid = l.tid;
    return coalesce(cardinality(unheld), 0);
end
$$;
create or replace function requeue.forget(q integer, keys bytea[]) returns void
language plpgsql volatile as $$
begin
    perform requeue.lock_keys(q, keys);
    with found as materialized (
        select i.tid from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    )
    update requeue.item i set failures = 0, error = null
    from found f
    where i.ctid = f.tid and i.state + 0 <> 3 and i.failures + 0 > 0;
    perform requeue.delete_empty(q, keys);
end
$$;
create or replace function requeue.remove(q integer, keys bytea[]) returns bytea[]
language plpgsql volatile as $$
declare
    removed bytea[];
begin
    perform requeue.lock_keys(q, keys);
    with found as materialized (
        select i.tid from unnest(keys) a (key) cross join lateral (
            select j.ctid as tid from requeue.item j
            where j.queue = q and j.key = a.key offset 0
        ) i
    ), changed as (
        update requeue.item i set
            state = case i.state when 1 then 0 else i.state end,
            since = case i.state when 1 then null else i.since end,
            dirty = false,
            pending_priority = null,
            delayed_until = null
        from found f
        where i.ctid = f.tid
            and (i.state + 0 = 1 or i.dirty or i.delayed_until is not null)
        returning i.key
    )
    select array_agg(c.key) into removed from changed c;
    perform requeue.delete_empty(q, keys);
    return removed;
end
$$;
create or replace function requeue.look(q integer, keys bytea[], clock bigint)
returns table (
    key bytea, state smallint, dirty boolean, token bigint, owner text, delay bigint,
    failures integer, deliveries integer
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    perform requeue.move_due(q, at, 0, 500);
    return query
        select i.key, i.state, i.dirty, i.token, i.owner, i.delayed_until - at,
            i.failures, i.deliveries
        from requeue.item i
        where i.queue = q and i.key = any (keys);
end
$$;
create or replace function requeue.stats(
    q integer, clock bigint,
    out ready bigint, out delayed bigint, out processing bigint, out dirty bigint,
    out failing bigint, out dead bigint, out oldest_ready bigint, out paused boolean
)
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
begin
    perform requeue.move_due(q, at, 0, 500);
    select
        count(*) filter (where i.state = 1),
        count(*) filter (where i.state = 2),
        count(*) filter (where i.state = 2 and i.dirty),
        max(greatest(0, at - i.since)) filter (where i.state = 1)
    into ready, processing, dirty, oldest_ready
    from requeue.item i
    where i.queue = q and i.since is not null and i.reason is null;
    select
        (select count(*) from requeue.item i
            where i.queue = q and i.delayed_until is not null),
        (select count(*) from requeue.item i
            where i.queue = q and i.failures > 0 and i.reason is null),
        (select count(*) from requeue.item i where i.queue = q and i.reason is not null),
        (select u.paused from requeue.queue u where u.id = q)
    into delayed, failing, dead, paused;
end
$$;
create or replace function requeue.failing(q integer, most bigint, clock bigint)
returns table (key bytea, failures integer, error text, retry_in bigint)
language sql volatile as $$
    select i.key, i.failures, coalesce(i.error, ''), i.delayed_until - c.at
    from requeue.now_micros(clock) c (at), requeue.item i
    where i.queue = q and i.failures > 0 and i.reason is null
    order by i.failures desc, i.key limit most
$$;
create or replace function requeue.workers(q integer, clock bigint)
returns table (owner text, seen bigint, processing bigint)
language sql volatile as $$
    with holders as (
        select i.owner, count(*) as processing
        from requeue.item i
        where i.queue = q and i.since is not null and i.reason is null
            and i.seq <= requeue.last_leased_seq(q) and i.state = 2
        group by i.owner
    )
    select o.name, greatest(0, c.at - o.seen), coalesce(h.processing, 0)
    from requeue.now_micros(clock) c (at),
        requeue.owner o left join holders h on h.owner = o.name
    where o.queue = q and (o.seen >= c.at - 86400000000 or h.processing > 0)
    order by o.name
$$;
create or replace function requeue.dead(q integer, most bigint, clock bigint)
returns table (
    key bytea, reason text, since bigint, failures integer, deliveries integer, owner text
)
language sql volatile as $$
    select i.key, coalesce(i.reason, ''), greatest(0, c.at - i.since), i.failures,
        i.deliveries, coalesce(i.owner, '')
    from requeue.now_micros(clock) c (at), requeue.item i
    where i.queue = q and i.reason is not null
    order by i.since, i.key limit most
$$;

create or replace function requeue.lock_dead(q integer, keys bytea[]) returns tid[]
language plpgsql volatile as $$
begin
    return coalesce(array_agg(d.tid order by d.since, d.key), '{}') from (
        select i.ctid as tid, i.since, i.key from requeue.item i
        where i.queue = q and i.reason is not null and (keys is null or i.key = any (keys))
        order by i.key for update
    ) d;
end
$$;
create or replace function requeue.revive(q integer, keys bytea[], clock bigint)
returns bigint
language plpgsql volatile as $$
declare
    at bigint := requeue.now_micros(clock);
    pos bigint := requeue.next_position();
    rows tid[] := requeue.lock_dead(q, keys);
begin
    update requeue.item i set
        state = 1,
        seq = pos + d.n,
        since = at,
        failures = 0,
        deliveries = 0,
        error = null,
        reason = null
    from unnest(rows) with ordinality d (tid, n)
    where i.ctid = d.tid;
    return cardinality(rows);
end
$$;
create or replace function requeue.drop_dead(q integer, keys bytea[]) returns bigint
language plpgsql volatile as $$
declare
    rows tid[] := requeue.lock_dead(q, keys);
begin
    delete from requeue.item i using unnest(rows) d (tid) where i.ctid = d.tid;
    return cardinality(rows);
end
$$;
create or replace function requeue.set_paused(q integer, value boolean) returns void
language sql volatile as $$
    update requeue.queue set paused = value where id = q and paused <> value
$$;
