-- Version 6: plainer names, one function to finish leases, and no shared watermark.

-- While a key is processing, `seq` has the priority of the lease. `pending_priority` is
-- that of an add that is pending (dirty or delayed), null if it is the same.
alter table requeue.item rename column wake_at to delayed_until;
alter table requeue.item rename column planned to pending_priority;
update requeue.item set pending_priority = -pending_priority
where pending_priority is not null;
alter index requeue.item_line rename to item_active;
alter index requeue.item_delay rename to item_delayed;

alter table requeue.queue rename column ranked to has_priorities;
alter sequence requeue.ranked rename to any_priorities;
alter sequence requeue.line rename to position;

alter table requeue.grants rename to lease_batch;
alter table requeue.lease_batch rename column first_place to first_seq;
alter table requeue.lease_batch rename column last_place to last_seq;
alter index requeue.grants_until rename to lease_batch_until;

drop sequence requeue.taken_0, requeue.taken_1, requeue.taken_2, requeue.taken_3,
    requeue.taken_4, requeue.taken_5, requeue.taken_6, requeue.taken_7;

-- Their names, parameters or results change.
drop procedure if exists requeue.add_waking;
drop function if exists requeue.add_keys;
drop function if exists requeue.add_limited;
drop function if exists requeue.add_new;
drop function if exists requeue.backoff;
drop function if exists requeue.buried;
drop function if exists requeue.finish;
drop function if exists requeue.finish_all;
drop function if exists requeue.finish_clean;
drop function if exists requeue.finish_known;
drop function if exists requeue.give_ranks;
drop function if exists requeue.hear_of;
drop function if exists requeue.last_granted;
drop function if exists requeue.lease;
drop function if exists requeue.micros;
drop function if exists requeue.move_due;
drop function if exists requeue.move_lapsed;
drop function if exists requeue.new_ranks;
drop function if exists requeue.next_expiry;
drop function if exists requeue.note_idle;
drop function if exists requeue.note_ranked;
drop function if exists requeue.note_unranked;
drop function if exists requeue.places;
drop function if exists requeue.put_longest_first;
drop function if exists requeue.rank;
drop function if exists requeue.ranked;
drop function if exists requeue.ready_between;
drop function if exists requeue.ready_by_rank;
drop function if exists requeue.reserve;
drop function if exists requeue.set_paused;
drop function if exists requeue.take;
drop function if exists requeue.taken;
drop function if exists requeue.taken_by;
drop function if exists requeue.tidy;
drop function if exists requeue.tidy_grants;
drop function if exists requeue.tokens;
drop function if exists requeue.unheld;
drop function if exists requeue.unranked;
drop function if exists requeue.wake(integer, bigint);
drop function if exists requeue.dead;
drop function if exists requeue.failing;
