-- Version 5: the tables are as they were. Batches of new keys are added by a function of
-- their own. This one is asked differently.
drop procedure if exists requeue.add_waking;
