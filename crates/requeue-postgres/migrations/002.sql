-- Version 2: a lease changes no indexed column. The server then writes the new version of
-- the row to the same page and updates no index (a HOT update), if the page has room. The
-- fill factor leaves that room: most keys are leased once and then deleted.
--
-- Ready and processing keys therefore share one index. Both have a time `since`; only dead
-- keys have a `reason`.
drop index requeue.item_ready, requeue.item_lease, requeue.item_failing, requeue.item_dead;
create index item_line on requeue.item (queue, seq) where since is not null and reason is null;
create index item_failing on requeue.item (queue, failures) where failures > 0 and reason is null;
create index item_dead on requeue.item (queue, since) where reason is not null;
alter table requeue.item set (fillfactor = 42);

-- One row per call that leased keys, kept while one of the leases may be held: the range of
-- tokens, the range of positions, and a time before which none of the leases expires.
create table requeue.grants (
    queue integer not null,
    until bigint not null,
    first_token bigint not null,
    last_token bigint not null,
    first_place bigint not null,
    last_place bigint not null
) with (autovacuum_vacuum_scale_factor = 0.02);

create index grants_until on requeue.grants (queue, until);

insert into requeue.grants
select queue, min(lease_until), min(token), max(token), min(seq), max(seq)
from requeue.item where state = 2 group by queue;

-- How far leases have come, for the queues whose ids end with these bits.
create sequence requeue.taken_0;
create sequence requeue.taken_1;
create sequence requeue.taken_2;
create sequence requeue.taken_3;
create sequence requeue.taken_4;
create sequence requeue.taken_5;
create sequence requeue.taken_6;
create sequence requeue.taken_7;

-- When a worker last found no key. A key that becomes ready notifies workers only if this
-- was a moment ago.
alter table requeue.queue add column idle_at bigint not null default 0;

-- Their parameters or results change.
drop function if exists requeue.lease;
drop function if exists requeue.finish_clean;
drop function if exists requeue.wake(integer, bigint, bigint);
