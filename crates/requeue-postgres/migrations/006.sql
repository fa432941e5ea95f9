-- Version 6: leases are finished by one function, which finds rows by their keys.
drop function if exists requeue.finish;
drop function if exists requeue.finish_all;
drop function if exists requeue.finish_known;
drop function if exists requeue.finish_clean;
drop function if exists requeue.lease;
