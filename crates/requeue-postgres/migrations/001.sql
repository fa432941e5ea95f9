-- Version 1. `requeue.` is replaced by the schema that the store was opened with.
--
-- All times are microseconds since 1970 on the server's clock.

create table requeue.queue (
    id integer generated always as identity primary key,
    name text collate "C" not null unique,
    paused boolean not null default false,
    -- Theoretical arrival time (GCRA) of the rate that the whole queue shares.
    arrival bigint not null default 0
);

-- One row per key, in one of these states:
--   0  idle: delayed, or failed before, or both
--   1  ready since `since`, at position `seq`
--   2  processing under `token` until `lease_until`; dirty if it was added meanwhile
--   3  dead since `since`, because of `reason`
-- A row in state 0 that is neither delayed nor failed is deleted. There is no foreign key
-- to the queue: checking it would cost more than writing the row.
create table requeue.item (
    seq bigint not null,
    since bigint,
    token bigint,
    lease_until bigint,
    wake_at bigint,
    queue integer not null,
    failures integer not null default 0,
    deliveries integer not null default 0,
    state smallint not null,
    dirty boolean not null default false,
    key bytea not null,
    owner text,
    error text,
    reason text,
    primary key (queue, key)
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.2
);

create index item_ready on requeue.item (queue, seq) where state = 1;
create index item_lease on requeue.item (queue, lease_until) where state = 2;
create index item_delay on requeue.item (queue, wake_at, seq) where wake_at is not null;
create index item_failing on requeue.item (queue, failures) where failures > 0 and state <> 3;
create index item_dead on requeue.item (queue, since) where state = 3;

create table requeue.owner (
    queue integer not null,
    name text collate "C" not null,
    seen bigint not null,
    primary key (queue, name)
);

-- Positions in the order of ready keys. Each statement takes one value and has 4096
-- positions for its keys.
create sequence requeue.line;

-- The last token of any queue.
create sequence requeue.token;
