-- Version 7: counts of keys, limiters, and rates that survive a wrong clock.
--
-- The functions of version 6 keep their parameters and results, so programs of version 6
-- keep working.

-- Changes of the number of keys in each state. The sums are the counts, so counting does
-- not depend on the number of keys. Each call adds one row, which waits for no other
-- transaction. Now and then a call replaces many rows by their sum.
create table requeue.count_change (
    queue integer not null,
    ready bigint not null,
    delayed bigint not null,
    processing bigint not null,
    dirty bigint not null,
    failing bigint not null,
    dead bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- What the row was before the last add that changed it: the state, plus 4 if it was
-- delayed, plus 8 if it was dirty. The add reads it to count what it changed.
alter table requeue.item add column before_add smallint;

-- When `arrival` was computed. If that is in the future, the clock was wrong.
alter table requeue.queue add column arrival_at bigint not null default 0;

-- Shared limiters: the theoretical arrival time (GCRA), and when it was computed.
create table requeue.limiter (
    queue integer not null,
    name text collate "C" not null,
    arrival bigint not null,
    arrival_at bigint not null,
    primary key (queue, name)
) with (fillfactor = 50);

-- It has one parameter more.
drop function if exists requeue.reserve_rate(integer, bigint, bigint, bigint, bigint);
