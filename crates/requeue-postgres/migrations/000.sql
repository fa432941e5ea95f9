-- What comes before any version: the table of versions. Whoever migrates holds the lock
-- until the commit, so that two programs that start at once do not both do it.
select pg_advisory_xact_lock(hashtext('requeue migration'));
create schema if not exists "requeue";
create table if not exists requeue.migration (
    version integer primary key,
    applied_at timestamptz not null default now()
);
