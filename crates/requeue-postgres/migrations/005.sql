-- Version 5: the tables do not change. `ranked` of a queue becomes false again when no key
-- has a priority other than 0. The parameters or results of these functions change.
drop procedure if exists requeue.add_waking;
drop function if exists requeue.lease;
