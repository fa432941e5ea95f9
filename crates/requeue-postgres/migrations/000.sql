-- Creates the table of versions, which every migration needs. The advisory lock is held
-- until the commit, so that two programs that start together do not both migrate.
select pg_advisory_xact_lock(hashtext('requeue migration'));
create schema if not exists "requeue";
create table if not exists requeue.migration (
    version integer primary key,
    applied_at timestamptz not null default now()
);
