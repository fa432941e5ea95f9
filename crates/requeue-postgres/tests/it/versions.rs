//! Schemas of older and newer versions.

use requeue::Finish;
use requeue_postgres::{PostgresStore, PostgresStoreBuilder};
use requeue_store::{
    Class, ErrorKind, FinishRequest, Finished, Hold, Migration, RepliesExt, Store, Token,
};
use tokio_postgres::{Client, Statement};

use crate::tools::{add, block_on, connect, key, lease, new_name, url};

/// The tables of each version, after the table of versions.
const MIGRATIONS: [&str; 7] = [
    include_str!("../../migrations/000.sql"),
    include_str!("../../migrations/001.sql"),
    include_str!("../../migrations/002.sql"),
    include_str!("../../migrations/003.sql"),
    include_str!("../../migrations/004.sql"),
    include_str!("../../migrations/005.sql"),
    include_str!("../../migrations/006.sql"),
];

/// The functions of version 6.
const VERSION_6: &str = include_str!("version_6.sql");

/// A schema of an older version, dropped by `end`.
struct OldSchema {
    url: String,
    name: String,
    client: Client,
}

impl OldSchema {
    /// Creates a schema of a version, with `rows` in the words of that version.
    async fn create(url: String, version: usize, rows: &str) -> Self {
        let schema = Self { name: new_name(), client: connect(&url).await, url };
        for (number, migration) in MIGRATIONS.iter().enumerate().take(version + 1) {
            schema.run(migration).await;
            if number > 0 {
                let record =
                    format!("insert into requeue.migration (version) values ({number})");
                schema.run(&record).await;
            }
        }
        if version == 6 {
            schema.run(VERSION_6).await;
        }
        schema.run(rows).await;
        schema
    }

    fn apply(&self, sql: &str) -> String {
        let sql = sql.replace("\"requeue\"", &self.name);
        sql.replace("requeue.", &format!("{}.", self.name))
    }

    async fn run(&self, sql: &str) {
        self.client.batch_execute(&self.apply(sql)).await.expect("the SQL runs");
    }

    async fn prepare(&self, sql: &str) -> Statement {
        self.client.prepare(&self.apply(sql)).await.expect("the SQL is valid")
    }

    fn builder(&self) -> PostgresStoreBuilder {
        PostgresStore::builder(&*self.url).schema(&*self.name).queue("q")
    }

    async fn migrate(&self, dry_run: bool) -> Migration {
        self.builder().migrate(dry_run).await.expect("it migrates")
    }

    async fn version(&self) -> i32 {
        let text = self.apply("select max(version) from requeue.migration");
        self.client.query_one(&text, &[]).await.expect("it has a version").get(0)
    }

    async fn end(self) {
        let drop = format!("drop schema {} cascade", self.name);
        self.client.batch_execute(&drop).await.expect("it is dropped");
    }
}

/// Opening a store to look at it migrated the schema, and older workers failed for good.
#[test]
fn opening_an_older_schema_changes_nothing_and_names_the_command() {
    let Some(url) = url() else { return };
    block_on(async {
        let rows = "select requeue.add('q', 'a')";
        let old = OldSchema::create(url, 6, rows).await;
        for builder in [old.builder(), old.builder().must_exist()] {
            let error = builder.open().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Version);
            assert!(error.to_string().contains("has version 6"), "{error}");
            assert!(error.to_string().contains("requeue migrate --store"), "{error}");
        }
        assert_eq!(old.version().await, 6);

        let plan = old.migrate(true).await;
        assert_eq!((plan.from, plan.to, plan.applied), (6, 7, false));
        assert_eq!(plan.steps.len(), 1);
        assert_eq!(old.version().await, 6);

        let done = old.migrate(false).await;
        assert_eq!(done, Migration { applied: true, ..plan });
        let again = old.migrate(false).await;
        assert_eq!(
            again,
            Migration { from: 7, to: 7, steps: Vec::new(), applied: false }
        );
        let store = old.builder().must_exist().open().await.unwrap();
        assert_eq!(store.stats().await.unwrap().ready, 1);
        drop(store);
        old.end().await;
    });
}

#[test]
fn schema_that_does_not_exist_is_not_created_by_a_migration() {
    let Some(url) = url() else { return };
    block_on(async {
        let builder = PostgresStore::builder(url).schema(new_name());
        let error = builder.migrate(false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("has no schema"), "{error}");
    });
}

/// The calls of a worker of version 6, with their statements prepared before the migration.
#[test]
fn worker_of_the_previous_version_keeps_working_after_a_migration() {
    let Some(url) = url() else { return };
    block_on(async {
        let rows = "select requeue.add('q', 'a'), requeue.add('q', 'b')";
        let old = OldSchema::create(url, 6, rows).await;
        let lease_one = "select * from requeue.lease(1, 'old', 1, 60000000, null, null, 0, 0, true, false)";
        let lease_one = old.prepare(lease_one).await;
        let add_key = "call requeue.add_and_wake(1, array[$1::bytea], array[0::bigint], false, array[0::bigint], 0, null, false, null, null, null, null, null)";
        let add_key = old.prepare(add_key).await;
        let finish = "select * from requeue.finish(1, array[$1::bytea], array[$2::bigint], array[0], array['succeed'], null, null, null, null, null, null)";
        let finish = old.prepare(finish).await;
        let extend = "select * from requeue.extend(1, 'old', array[$1::bytea], array[$2::bigint], array[0], 60000000, null)";
        let extend = old.prepare(extend).await;
        let stats = old.prepare("select * from requeue.stats(1, null)").await;
        let grant = |row: tokio_postgres::Row| {
            (
                row.get::<_, Vec<Vec<u8>>>("keys").remove(0),
                row.get::<_, Vec<i64>>("tokens")[0],
            )
        };
        let (a, token) = grant(old.client.query_one(&lease_one, &[]).await.unwrap());
        assert_eq!(a, b"a");

        assert!(old.migrate(false).await.applied);
        let row = old.client.query_one(&extend, &[&a, &token]).await.unwrap();
        assert_eq!(row.get::<_, Vec<i32>>(0), [0]);
        let row = old.client.query_one(&finish, &[&a, &token]).await.unwrap();
        assert_eq!(row.get::<_, Vec<i32>>("done"), [1]);
        old.client.query_one(&add_key, &[&&b"c"[..]]).await.unwrap();
        let (b, newer) = grant(old.client.query_one(&lease_one, &[]).await.unwrap());
        assert!(b == b"b" && newer > token);
        let row = old.client.query_one(&stats, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>("ready"), row.get::<_, i64>("processing")), (1, 1));

        let store = old.builder().open().await.unwrap();
        let counts = store.stats().await.unwrap();
        assert_eq!((counts.ready, counts.processing), (1, 1));
        assert_eq!(lease(&store, 9).await[0].key, key("c"));
        drop(store);
        old.end().await;
    });
}

/// A worker reported missing functions as corrupt data, and stopped.
#[test]
fn worker_waits_after_a_migration_to_a_version_that_it_does_not_know() {
    let Some(url) = url() else { return };
    block_on(async {
        let schema = new_name();
        let builder = || PostgresStore::builder(&*url).schema(&*schema);
        let store = builder().open().await.unwrap();
        store.add(&[add("a")]).all().await.unwrap();
        let client = connect(&url).await;
        let newer = format!(
            "insert into {schema}.migration (version) values (8);
             alter function {schema}.lease rename to lease_8"
        );
        client.batch_execute(&newer).await.unwrap();
        // A prepared statement finds a renamed function.
        drop(store);
        let error = builder().open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        client
            .batch_execute(&format!("delete from {schema}.migration where version = 8"))
            .await
            .unwrap();
        let store = builder().open().await.unwrap();
        client
            .batch_execute(&format!(
                "insert into {schema}.migration (version) values (8)"
            ))
            .await
            .unwrap();
        let error = store.lease(&crate::tools::request(1)).await.unwrap_err();
        assert_eq!(error.class(), Class::RetryElsewhere, "{error}");
        assert!(error.to_string().contains("migrated to version 8"), "{error}");
        let back = format!("alter function {schema}.lease_8 rename to lease");
        client.batch_execute(&back).await.unwrap();
        assert_eq!(lease(&store, 1).await[0].key, key("a"));
        drop(store);
        client.batch_execute(&format!("drop schema {schema} cascade")).await.unwrap();
    });
}

/// Version 1 found leases by a separate index, later versions by lease batches.
#[test]
fn leases_of_version_1_survive_the_migration() {
    let Some(url) = url() else { return };
    block_on(async {
        let rows = "
            insert into requeue.queue (name) values ('q');
            insert into requeue.item (queue, key, seq, state, since)
            values (1, 'b', 2, 1, 5);
            insert into requeue.item (queue, key, seq, state, since, token, owner, lease_until)
            values (1, 'a', 1, 2, 5, 7, 'gone', 9);";
        let old = OldSchema::create(url, 1, rows).await;
        old.migrate(false).await;
        let store = old.builder().open().await.unwrap();
        let grants = lease(&store, 9).await;
        let keys: Vec<_> = grants.iter().map(|grant| &*grant.key).collect();
        assert_eq!(keys, [b"b", b"a"], "the lease of a had expired");
        drop(store);
        old.end().await;
    });
}

/// Up to version 5 the priority of a pending add was stored negated.
#[test]
fn priorities_of_version_5_survive_the_migration() {
    let Some(url) = url() else { return };
    block_on(async {
        let rows = "
            insert into requeue.queue (name, ranked) values ('q', true);
            select setval('requeue.ranked', 1);
            insert into requeue.item (queue, key, seq, state, since)
            values (1, 'a', 2 - (3::bigint << 55), 1, 5);
            insert into requeue.item
                (queue, key, seq, state, since, token, owner, lease_until, dirty, planned)
            values (1, 'b', 1, 2, 5, 7, 'alive', 4000000000000000, true, -7);
            insert into requeue.grants values (1, 4000000000000000, 7, 7, 1, 1);";
        let old = OldSchema::create(url, 5, rows).await;
        old.migrate(false).await;
        let store = old.builder().open().await.unwrap();
        let hold = Hold { key: key("b"), token: Token(7) };
        let finished =
            store.finish(&[FinishRequest::new(hold, Finish::Done)]).all().await;
        assert_eq!(finished.unwrap(), [Finished::Requeued]);
        let grants = lease(&store, 9).await;
        let order: Vec<_> =
            grants.iter().map(|grant| (&*grant.key, grant.priority)).collect();
        assert_eq!(order, [(&b"b"[..], 7), (&b"a"[..], 3)]);
        drop(store);
        old.end().await;
    });
}
