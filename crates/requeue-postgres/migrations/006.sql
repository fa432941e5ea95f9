-- Version 6: leases are finished by one function, which finds rows by their keys. How far
-- the line was read is known to each client, and no longer shared.
drop function if exists requeue.take;
drop function if exists requeue.taken;
drop function if exists requeue.taken_by;
drop sequence requeue.taken_0, requeue.taken_1, requeue.taken_2, requeue.taken_3,
    requeue.taken_4, requeue.taken_5, requeue.taken_6, requeue.taken_7;
drop function if exists requeue.finish;
drop function if exists requeue.finish_all;
drop function if exists requeue.finish_known;
drop function if exists requeue.finish_clean;
drop function if exists requeue.lease;
drop function if exists requeue.add_keys;
drop function if exists requeue.add_new;
drop procedure if exists requeue.add_waking;
