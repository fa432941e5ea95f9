-- Version 2: a lease changes no column that an index mentions. The server then writes the
-- new version of a row beside the old one and leaves all indexes alone, if the page has
-- room: hence the fill factor, since most keys are leased once and then gone.
--
-- So who is in line has one index, whether ready or processing: what has a time `since`
-- and no `reason`, which only the dead have.
drop index requeue.item_ready, requeue.item_lease, requeue.item_failing, requeue.item_dead;
create index item_line on requeue.item (queue, seq) where since is not null and reason is null;
create index item_failing on requeue.item (queue, failures) where failures > 0 and reason is null;
create index item_dead on requeue.item (queue, since) where reason is not null;
alter table requeue.item set (fillfactor = 42);

-- One row for each call that handed out keys, for as long as one of them may be held: the
-- tokens, the places in line, and a time before which none of these leases runs out.
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

-- How far calls in line have come, for the queues whose numbers end with these bits.
create sequence requeue.taken_0;
create sequence requeue.taken_1;
create sequence requeue.taken_2;
create sequence requeue.taken_3;
create sequence requeue.taken_4;
create sequence requeue.taken_5;
create sequence requeue.taken_6;
create sequence requeue.taken_7;

-- When a worker last found nothing to do: whether a key that becomes ready wakes anybody.
alter table requeue.queue add column idle_at bigint not null default 0;

-- These answer with something else than before, or are asked differently.
drop function if exists requeue.lease;
drop function if exists requeue.finish_clean;
drop function if exists requeue.wake(integer, bigint, bigint);
