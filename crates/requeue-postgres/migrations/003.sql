-- Version 3: the tables do not change. The parameters of these functions do.
drop function if exists requeue.expire;
drop function if exists requeue.move_due;
