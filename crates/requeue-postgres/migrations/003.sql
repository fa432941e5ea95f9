-- Version 3: the tables are as they were, and the functions do more in one statement. This
-- one is asked differently.
drop function if exists requeue.expire;
