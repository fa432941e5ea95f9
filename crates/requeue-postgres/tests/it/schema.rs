//! Creating the schema, and the SQL interface.

use requeue_postgres::PostgresStore;
use requeue_store::{Add, ErrorKind, RepliesExt, Store};
use tokio_postgres::types::Type;

use crate::tools::{add, block_on, connect, lease, new_name, pid, run, url};

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
        assert_eq!(bench.client.query_one(&text, &[]).await.unwrap().get::<_, i64>(0), 7);
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

/// The documented statements for drivers that send the types of parameters, as sqlx does.
#[test]
fn prepared_statement_with_types_adds_keys_in_a_transaction() {
    run(|bench| async move {
        let mut user = connect(&bench.url).await;
        let transaction = user.transaction().await.unwrap();
        let one = "select requeue.add($1, $2)";
        let text =
            transaction.prepare_typed(one, &[Type::TEXT, Type::TEXT]).await.unwrap();
        transaction.execute(&text, &[&bench.queue, &"a"]).await.unwrap();
        let bytes =
            transaction.prepare_typed(one, &[Type::TEXT, Type::BYTEA]).await.unwrap();
        transaction.execute(&bytes, &[&bench.queue, &&b"b"[..]]).await.unwrap();
        let many =
            "select requeue.add($1, k) from (select unnest($2::text[]) k order by 1) s";
        let many = transaction.prepare_typed(many, &[Type::TEXT, Type::TEXT_ARRAY]).await;
        transaction
            .execute(&many.unwrap(), &[&bench.queue, &vec!["d", "c"]])
            .await
            .unwrap();
        assert!(lease(&bench.store, 9).await.is_empty(), "it is not committed");
        transaction.commit().await.unwrap();
        let wake =
            user.prepare_typed("select requeue.wake($1)", &[Type::TEXT]).await.unwrap();
        user.execute(&wake, &[&bench.queue]).await.unwrap();
        let keys: Vec<_> =
            lease(&bench.store, 9).await.into_iter().map(|g| g.key).collect();
        assert_eq!(keys, ["a", "b", "c", "d"].map(crate::tools::key));
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
