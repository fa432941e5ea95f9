//! A pooler in transaction mode: each transaction may run on another connection.

use std::time::Duration;

use requeue_postgres::PostgresStore;
use requeue_store::{ErrorKind, RepliesExt, SharedQueue, Store};

use crate::tools::{
    PATIENCE, add, block_on, connect, done, finish, key, lease, new_name, request, run,
};

/// Returns the address of the pooler. Without one, tests skip themselves.
fn pooler() -> Option<String> {
    crate::tools::variable("REQUEUE_PGBOUNCER_URL")
}

#[test]
fn stores_share_the_connections_of_a_pooler() {
    let Some(url) = pooler() else { return };
    block_on(async {
        let (queue, mut tasks) = (new_name(), Vec::new());
        for number in 0..6 {
            let builder = PostgresStore::builder(&*url).queue(&*queue);
            let store = builder.open().await.unwrap();
            tasks.push(tokio::spawn(async move {
                for round in 0..10 {
                    let names: Vec<_> =
                        (0..10).map(|n| format!("{number}-{round}-{n}")).collect();
                    let adds: Vec<_> = names.iter().map(|name| add(name)).collect();
                    store.add(&adds).all().await.unwrap();
                    let grants = lease(&store, 10).await;
                    let held: Vec<_> =
                        grants.iter().map(|grant| done(grant).hold).collect();
                    let (owner, minute) = (request(1).owner, Duration::from_secs(60));
                    let extended = store.extend(&owner, &held, minute).all().await;
                    assert!(extended.unwrap().into_iter().all(|held| held));
                    let ends: Vec<_> = grants.iter().map(done).collect();
                    finish(&store, &ends).await;
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let store = PostgresStore::builder(&*url).queue(&*queue).must_exist();
        let stats = store.open().await.unwrap().stats().await.unwrap();
        assert_eq!((stats.ready, stats.processing), (0, 0));
    });
}

#[test]
fn waiting_worker_finds_keys_by_polling() {
    let Some(url) = pooler() else { return };
    run(|bench| async move {
        let store =
            PostgresStore::builder(url).queue(&*bench.queue).open().await.unwrap();
        let queue = SharedQueue::<String, _>::new(store);
        let waiting = tokio::spawn(async move {
            let lease = queue.get().await.unwrap().unwrap();
            let key = lease.key().clone();
            lease.succeed().await.unwrap();
            key
        });
        bench.store.add(&[add("a")]).all().await.unwrap();
        let found = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert_eq!(found, "a");
    });
}

/// A key is locked by a user's transaction that also goes through the pooler.
#[test]
fn locked_key_is_busy_behind_a_pooler_and_added_in_a_transaction() {
    let Some(url) = pooler() else { return };
    run(|bench| async move {
        let store =
            PostgresStore::builder(&*url).queue(&*bench.queue).open().await.unwrap();
        let plain = url.split_once('?').unwrap().0;
        let mut user = connect(plain).await;
        let transaction = user.transaction().await.unwrap();
        store.add_in(&transaction, &[add("a")]).await.unwrap();
        let results = store.add(&[add("a"), add("b")]).await;
        assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::Busy);
        assert!(results[1].is_ok());
        transaction.commit().await.unwrap();
        let keys: Vec<_> =
            lease(&store, 9).await.into_iter().map(|grant| grant.key).collect();
        assert_eq!(keys, [key("a"), key("b")]);
    });
}

/// Settings and prepared statements end up on other connections of the server.
#[test]
fn pooler_is_mentioned_if_the_address_does_not_name_it() {
    let Some(url) = pooler() else { return };
    block_on(async {
        let plain = url.split_once('?').unwrap().0.to_owned();
        let queue = new_name();
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let builder = PostgresStore::builder(&*plain).queue(&*queue);
            tasks.push(tokio::spawn(async move {
                let store = builder.open().await?;
                for _ in 0..50 {
                    store.stats().await?;
                    store.lease(&request(1)).await?;
                }
                Ok::<_, requeue_store::Error>(())
            }));
        }
        let mut hints = 0;
        for task in tasks {
            if let Err(error) = task.await.unwrap() {
                hints += usize::from(error.to_string().contains("pgbouncer=true"));
            }
        }
        assert!(hints > 0, "at least one call meets a missing statement");
    });
}
