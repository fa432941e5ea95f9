-- Batches in which a key is locked, key by key. The parameters are those of the functions
-- for whole batches. A key that stays locked for a millisecond is busy, and the others go
-- on. Each key takes a subtransaction, so these are only called after a lock timeout.
--
-- Locks as the functions for whole batches, but waits only a moment for each.

-- As `add_keys`. `busy` are the indexes of locked keys.
create or replace function requeue.add_each(
    q integer, keys bytea[], seqs bigint[], has_priorities boolean, delays bigint[],
    revive_after bigint, clock bigint,
    out changed bytea[], out states smallint[], out waits bigint[], out all_new boolean,
    out busy integer[]
)
language plpgsql volatile as $$
declare
    one record;
begin
    all_new := false;
    perform set_config('lock_timeout', '1', true);
    for n in 1..cardinality(keys) loop
        begin
            select a.* into one from requeue.add_keys(
                q, keys[n:n], seqs[n:n], has_priorities and requeue.has_priority(seqs[n]),
                delays[n:n], revive_after, clock) a;
            changed := changed || one.changed;
            states := states || one.states;
            waits := waits || one.waits;
        exception when lock_not_available then
            busy := busy || n;
        end;
    end loop;
end
$$;

-- As `add_rate_limited`. `busy` are the indexes of locked keys.
create or replace function requeue.add_rate_limited_each(
    q integer, keys bytea[], seqs bigint[], has_priorities boolean, bases bigint[],
    limits bigint[], pause bigint, burst bigint, revive_after bigint, clock bigint,
    out changed bytea[], out states smallint[], out waits bigint[], out busy integer[]
)
language plpgsql volatile as $$
declare
    one record;
begin
    perform set_config('lock_timeout', '1', true);
    for n in 1..cardinality(keys) loop
        begin
            select a.* into one from requeue.add_rate_limited(
                q, keys[n:n], seqs[n:n], has_priorities and requeue.has_priority(seqs[n]),
                bases[n:n], limits[n:n], pause, burst, revive_after, clock) a;
            changed := changed || one.changed;
            states := states || one.states;
            waits := waits || one.waits;
        exception when lock_not_available then
            busy := busy || n;
        end;
    end loop;
end
$$;

-- As `finish`. `busy` are the indexes of locked keys.
create or replace function requeue.finish_each(
    q integer, keys bytea[], tokens bigint[], ords integer[], finishes text[],
    delays bigint[], limits bigint[], errors text[], pause bigint, burst bigint,
    clock bigint,
    out done integer[], out others integer[], out results text[], out waits bigint[],
    out busy integer[]
)
language plpgsql volatile as $$
declare
    one record;
begin
    perform set_config('lock_timeout', '1', true);
    for n in 1..cardinality(keys) loop
        begin
            select f.* into one from requeue.finish(
                q, keys[n:n], tokens[n:n], ords[n:n], finishes[n:n], delays[n:n],
                limits[n:n], errors[n:n],
                case finishes[n] when 'retry' then pause end, burst, clock) f;
            if one.done is not null then
                done := done || n;
            elsif one.others is not null then
                others := others || n;
                results := results || one.results;
                waits := waits || one.waits;
            end if;
        exception when lock_not_available then
            busy := busy || n;
        end;
    end loop;
end
$$;

-- As `extend`. `busy` are the `ords` of locked keys.
create or replace function requeue.extend_each(
    q integer, who text, keys bytea[], tokens bigint[], ords integer[], duration bigint,
    clock bigint, out extended integer[], out busy integer[]
)
language plpgsql volatile as $$
begin
    perform set_config('lock_timeout', '1', true);
    for n in 1..cardinality(keys) loop
        begin
            extended := extended || requeue.extend(
                q, who, keys[n:n], tokens[n:n], ords[n:n], duration, clock);
        exception when lock_not_available then
            busy := busy || ords[n];
        end;
    end loop;
end
$$;

-- Records that an owner without leases is alive. Locks as `record_owner`.
create or replace function requeue.heartbeat(q integer, who text, clock bigint)
returns void
language sql volatile as $$
    select requeue.record_owner(q, who, requeue.now_micros(clock))
$$;
