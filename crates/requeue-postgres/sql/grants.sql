-- A producer adds keys, with or without a delay, a priority and a shared rate.
grant usage on schema requeue to producer;
grant select on requeue.migration to producer;
grant select, insert, update on requeue.queue, requeue.item to producer;
grant select, insert, delete on requeue.count_change to producer;
grant usage, select, update on sequence requeue.position, requeue.any_priorities to producer;

-- A worker makes all calls, but cannot change the tables.
grant usage on schema requeue to worker;
grant select on requeue.migration to worker;
grant select, insert, update, delete on requeue.queue, requeue.item, requeue.count_change,
    requeue.lease_batch, requeue.owner, requeue.limiter to worker;
grant usage, select, update on all sequences in schema requeue to worker;

-- A reader only looks.
grant usage on schema requeue to reader;
grant select on all tables in schema requeue to reader;
