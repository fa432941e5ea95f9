-- Version 5: the tables are as they were. Batches of new keys are added by a function of
-- their own, and a lease tells how long its keys were ready. These are asked differently,
-- or answer with something else than before.
--
-- Of a queue that is `ranked`, that is taken back once no key has another priority than 0.
drop procedure if exists requeue.add_waking;
drop function if exists requeue.lease;
