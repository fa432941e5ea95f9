-- Version 4: priorities. A place in line has the rank of its priority in front, so that the
-- order of places is that of the line: `seq` = place + (rank << 55), and the rank is the
-- priority times -1. All that was there has priority 0.
--
-- What is planned for a key has the rank in `seq`, unless the key is being processed: then
-- that is the rank that it was handed out with, and what is planned besides has the rank
-- `planned`, or if that is null the same one.
alter table requeue.item add column planned smallint;

-- Whether a key of the queue ever had another priority than 0. Where none had, there is
-- less to look at.
alter table requeue.queue add column ranked boolean not null default false;

-- Has a value once that is so for any queue: told past all transactions, and cheap to read.
create sequence requeue.ranked;

-- These are asked differently, or answer with something else than before.
drop function if exists requeue.add(text, bytea, interval, interval);
drop function if exists requeue.add(text, text, interval, interval);
drop function if exists requeue.add_keys;
drop function if exists requeue.add_limited;
drop procedure if exists requeue.add_waking;
drop function if exists requeue.lease;
