//! Creating and migrating the schema, and the SQL interface.

use requeue::Finish;
use requeue_postgres::PostgresStore;
use requeue_store::{
    Add, ErrorKind, FinishRequest, Finished, Hold, RepliesExt, Store, Token,
};
use tokio_postgres::Client;

use crate::tools::{add, block_on, connect, key, lease, new_name, pid, run, url};

#[test]
fn concurrent_opens_create_the_tables_once() {
    run(|bench| async move {
        let schema = new_name();
        let open = || {
            let builder = PostgresStore::builder(&*bench.url).schema(&*schema).queue("q");
            tokio::spawn(builder.open())
        };
        for task in [open(), open(), open(), open()] {
            task.await.unwrap().unwrap();
        }
        open().await.unwrap().unwrap();
        let text = format!("select count(*) from {schema}.migration");
        assert_eq!(bench.client.query_one(&text, &[]).await.unwrap().get::<_, i64>(0), 6);
        let text = format!("select count(*) from {schema}.queue");
        assert_eq!(bench.client.query_one(&text, &[]).await.unwrap().get::<_, i64>(0), 1);
        let drop = format!("drop schema {schema} cascade");
        bench.client.batch_execute(&drop).await.unwrap();
    });
}

/// A call waits only a moment for a lock. Opening a store waits for another program's
/// migration.
#[test]
fn opening_waits_longer_for_a_migration_than_a_call_for_a_key() {
    run(|bench| async move {
        let mut other = connect(&bench.url).await;
        let migration = other.transaction().await.unwrap();
        let lock = "select pg_advisory_xact_lock(hashtext('requeue migration'))";
        migration.batch_execute(lock).await.unwrap();
        bench.store.add_in(&migration, &[add("a")]).await.unwrap();
        let (holder, schema) = (pid(&migration).await, new_name());
        let url = format!("{}?application_name={schema}", bench.url);
        let opening = tokio::spawn(PostgresStore::builder(url).schema(&*schema).open());
        let waits = async || bench.blocked_by(holder).await.contains(&schema);
        while !waits().await {
            tokio::task::yield_now().await;
        }

        let error = bench.store.add(&[add("a")]).all().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(waits().await);
        migration.commit().await.unwrap();
        let store = opening.await.unwrap().unwrap();
        store.add(&[add("a")]).all().await.unwrap();
        drop(store);
        let drop = format!("drop schema {schema} cascade");
        bench.client.batch_execute(&drop).await.unwrap();
    });
}

#[test]
fn newer_schema_is_rejected_and_left_alone() {
    let Some(url) = url() else { return };
    block_on(async {
        let schema = new_name();
        let builder = || PostgresStore::builder(&*url).schema(&*schema);
        drop(builder().open().await.unwrap());
        let client = connect(&url).await;
        let newer = format!("insert into {schema}.migration (version) values (99)");
        client.batch_execute(&newer).await.unwrap();
        let error = builder().open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        assert!(error.to_string().contains("has version 99"), "{error}");
        client.batch_execute(&format!("drop schema {schema} cascade")).await.unwrap();
    });
}

/// Creates a schema with the first migrations and `rows`, in the words of that version.
async fn create_old(client: &Client, schema: &str, migrations: &[&str], rows: &str) {
    for (version, sql) in migrations.iter().enumerate() {
        run_in(client, schema, sql).await;
        let record =
            format!("insert into requeue.migration (version) values ({version})");
        if version > 0 {
            run_in(client, schema, &record).await;
        }
    }
    run_in(client, schema, rows).await;
}

async fn run_in(client: &Client, schema: &str, sql: &str) {
    let sql = sql.replace("\"requeue\"", schema);
    let sql = sql.replace("requeue.", &format!("{schema}."));
    client.batch_execute(&sql).await.expect("the SQL runs");
}

/// Version 1 found leases by a separate index, later versions by lease batches.
#[test]
fn leases_of_version_1_survive_the_migration() {
    let Some(url) = url() else { return };
    block_on(async {
        let (schema, client) = (new_name(), connect(&url).await);
        let migrations = [
            include_str!("../../migrations/000.sql"),
            include_str!("../../migrations/001.sql"),
        ];
        let rows = "
            insert into requeue.queue (name) values ('q');
            insert into requeue.item (queue, key, seq, state, since)
            values (1, 'b', 2, 1, 5);
            insert into requeue.item (queue, key, seq, state, since, token, owner, lease_until)
            values (1, 'a', 1, 2, 5, 7, 'gone', 9);";
        create_old(&client, &schema, &migrations, rows).await;
        let builder = PostgresStore::builder(&*url).schema(&*schema).queue("q");
        let store = builder.open().await.unwrap();
        let grants = lease(&store, 9).await;
        let keys: Vec<_> = grants.iter().map(|grant| &*grant.key).collect();
        assert_eq!(keys, [b"b", b"a"], "the lease of a had expired");
        client.batch_execute(&format!("drop schema {schema} cascade")).await.unwrap();
    });
}

/// Up to version 5 the priority of a pending add was stored negated.
#[test]
fn priorities_of_version_5_survive_the_migration() {
    let Some(url) = url() else { return };
    block_on(async {
        let (schema, client) = (new_name(), connect(&url).await);
        let migrations = [
            include_str!("../../migrations/000.sql"),
            include_str!("../../migrations/001.sql"),
            include_str!("../../migrations/002.sql"),
            include_str!("../../migrations/003.sql"),
            include_str!("../../migrations/004.sql"),
            include_str!("../../migrations/005.sql"),
        ];
        let rows = "
            insert into requeue.queue (name, ranked) values ('q', true);
            select setval('requeue.ranked', 1);
            insert into requeue.item (queue, key, seq, state, since)
            values (1, 'a', 2 - (3::bigint << 55), 1, 5);
            insert into requeue.item
                (queue, key, seq, state, since, token, owner, lease_until, dirty, planned)
            values (1, 'b', 1, 2, 5, 7, 'alive', 4000000000000000, true, -7);
            insert into requeue.grants values (1, 4000000000000000, 7, 7, 1, 1);";
        create_old(&client, &schema, &migrations, rows).await;
        let builder = PostgresStore::builder(&*url).schema(&*schema).queue("q");
        let store = builder.open().await.unwrap();
        let hold = Hold { key: key("b"), token: Token(7) };
        let finished =
            store.finish(&[FinishRequest::new(hold, Finish::Done)]).all().await;
        assert_eq!(finished.unwrap(), [Finished::Requeued]);
        let grants = lease(&store, 9).await;
        let order: Vec<_> =
            grants.iter().map(|grant| (&*grant.key, grant.priority)).collect();
        assert_eq!(order, [(&b"b"[..], 7), (&b"a"[..], 3)]);
        client.batch_execute(&format!("drop schema {schema} cascade")).await.unwrap();
    });
}

#[test]
fn missing_tables_are_reported_as_corrupt() {
    let Some(url) = url() else { return };
    block_on(async {
        let schema = new_name();
        let store = PostgresStore::builder(&*url).schema(&*schema).open().await.unwrap();
        let client = connect(&url).await;
        client.batch_execute(&format!("drop schema {schema} cascade")).await.unwrap();
        assert_eq!(store.stats().await.unwrap_err().kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn sql_function_adds_keys() {
    run(|bench| async move {
        let add = format!("select requeue.add('{}', 'a')", bench.queue);
        bench.client.batch_execute(&add).await.unwrap();
        let later = format!("select requeue.add('{}', 'b', '1 hour')", bench.queue);
        bench.client.batch_execute(&later).await.unwrap();
        let stats = bench.store.stats().await.unwrap();
        assert_eq!((stats.ready, stats.delayed), (1, 1));
        assert_eq!(&*lease(&bench.store, 9).await[0].key, b"a");
        let urgent =
            format!("select requeue.add('{}', 'c', priority => 127)", bench.queue);
        bench.client.batch_execute(&urgent).await.unwrap();
        assert_eq!(lease(&bench.store, 9).await[0].priority, 127);
        let beyond =
            format!("select requeue.add('{}', 'c', priority => 128)", bench.queue);
        assert!(bench.client.batch_execute(&beyond).await.is_err());
        let long = format!("select requeue.add('{}', repeat('x', 1025))", bench.queue);
        assert!(bench.client.batch_execute(&long).await.is_err());
    });
}

/// River rewrites the row of every duplicate.
#[test]
fn duplicate_add_writes_nothing() {
    run(|bench| async move {
        let queue = bench.queue_id().await;
        let written = || async {
            let text = "select xmin::text, ctid::text from requeue.item where queue = $1";
            let row = bench.client.query_one(text, &[&queue]).await.unwrap();
            (row.get::<_, String>(0), row.get::<_, String>(1))
        };
        bench.store.add(&[add("a")]).all().await.unwrap();
        let ready = written().await;
        bench.store.add(&[add("a"), add("a")]).all().await.unwrap();
        assert_eq!(written().await, ready);

        lease(&bench.store, 1).await;
        bench.store.add(&[add("a")]).all().await.unwrap();
        let dirty = written().await;
        assert_ne!(dirty, ready);
        bench.store.add(&[add("a")]).all().await.unwrap();
        assert_eq!(written().await, dirty);

        bench.store.add(&[Add { priority: 5, ..add("a") }]).all().await.unwrap();
        let raised = written().await;
        assert_ne!(raised, dirty);
        bench.store.add(&[add("a")]).all().await.unwrap();
        assert_eq!(written().await, raised);
    });
}
