-- Version 4: priorities. `seq` = position + (rank << 55), where the rank is the negated
-- priority, so that ordering by `seq` is ordering by priority and then by position. All
-- existing keys have priority 0.
--
-- An add that is pending, because the key is dirty or delayed, has the rank in `seq`. While
-- the key is processing, `seq` has the rank of the lease, and a pending add has the rank
-- `planned`, or the same one if that is null.
alter table requeue.item add column planned smallint;

-- Whether a key of the queue has a priority other than 0. If none has, leases are cheaper.
alter table requeue.queue add column ranked boolean not null default false;

-- Has a value as soon as that holds for any queue. Visible to all transactions at once, and
-- cheap to read.
create sequence requeue.ranked;

-- Their parameters or results change.
drop function if exists requeue.add(text, bytea, interval, interval);
drop function if exists requeue.add(text, text, interval, interval);
drop function if exists requeue.add_keys;
drop function if exists requeue.add_limited;
drop procedure if exists requeue.add_waking;
drop function if exists requeue.lease;
