-- Counts of keys by state, as sums of changes.

-- Records by how much the counts of a queue change. Takes no locks that others wait for.
--
-- About one call in a thousand folds the changes. If the table is large, fewer do: folding
-- reads all of it, also rows that are dead but not removed while another transaction is open.
create or replace function requeue.record_counts(
    q integer, ready bigint, delayed bigint, processing bigint, dirty bigint,
    failing bigint, dead bigint
) returns void
language plpgsql volatile as $$
begin
    insert into requeue.count_change
    values (q, ready, delayed, processing, dirty, failing, dead);
    if random() < 0.001
        and random() * pg_relation_size('requeue.count_change') < 1000000
    then
        perform requeue.fold_counts(q);
    end if;
end
$$;

-- Replaces changes by their sum. Does nothing in a transaction of a user that would fail
-- because another one does the same.
--
-- Locks: rows of `count_change`. Skips locked ones.
create or replace function requeue.fold_counts(q integer) returns void
language plpgsql volatile as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    with gone as (
        delete from requeue.count_change c
        where c.ctid = any (array(
            select d.ctid from requeue.count_change d
            where d.queue = q limit 10000 for update skip locked
        ))
        returning c.*
    )
    insert into requeue.count_change
    select q, sum(g.ready), sum(g.delayed), sum(g.processing), sum(g.dirty),
        sum(g.failing), sum(g.dead)
    from gone g having count(*) > 0;
end
$$;

-- Counts the keys of all queues again. Needed after rows were changed by hand.
--
-- Locks the table of keys against changes.
create or replace function requeue.recount() returns void
language plpgsql volatile as $$
begin
    lock table requeue.item in exclusive mode;
    delete from requeue.count_change;
    insert into requeue.count_change
    select i.queue,
        count(*) filter (where i.state = 1),
        count(*) filter (where i.delayed_until is not null),
        count(*) filter (where i.state = 2),
        count(*) filter (where i.state = 2 and i.dirty),
        count(*) filter (where i.failures > 0 and i.state <> 3),
        count(*) filter (where i.state = 3)
    from requeue.item i group by i.queue;
end
$$;

-- Returns whether this user may change keys in this transaction: not on a standby, and not
-- if the user may only read.
create or replace function requeue.may_write() returns boolean
language sql stable as $$
    select current_setting('transaction_read_only') = 'off'
        and has_table_privilege('requeue.item', 'update')
$$;
