-- Version 3: the tables are as they were, and the functions do more in one statement. These
-- are asked differently.
drop function if exists requeue.expire;
drop function if exists requeue.move_due;
