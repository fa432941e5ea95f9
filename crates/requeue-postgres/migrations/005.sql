-- Version 5: the tables are as they were, and a lease tells how long its keys were ready.
drop function if exists requeue.lease;
