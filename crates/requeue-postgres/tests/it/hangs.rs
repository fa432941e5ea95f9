//! Connections that do not answer, and calls that are dropped.

use std::time::Duration;

use requeue_postgres::PostgresStore;
use requeue_store::{RepliesExt, Store};
use tokio::time::timeout;

use crate::proxy::Proxy;
use crate::tools::{Bench, add, connect, done, key, lease, new_name, pid, request, run};

/// A lease of a heartbeat, on a connection through the proxy.
const MINUTE: Duration = Duration::from_secs(60);

/// Long enough for a working call on a slow machine, and shorter than the time limit of a
/// call that hangs.
const SOON: Duration = Duration::from_secs(20);

/// Long enough to be suspicious.
const MOMENT: Duration = Duration::from_millis(150);

/// A heartbeat that was abandoned returned its hung connection to the pool, and the next
/// one picked it up again.
#[test]
fn heartbeat_after_a_hung_one_uses_a_new_connection() {
    run(|bench| async move {
        let proxy = Proxy::start(&bench.url).await;
        let store = PostgresStore::builder(&*proxy.url).queue(&*bench.queue);
        let store = store.open().await.unwrap();
        store.add(&[add("a")]).all().await.unwrap();
        let owner = request(1).owner;
        let held = [done(&lease(&store, 1).await[0]).hold];
        proxy.hang();
        for _ in 0..2 {
            let stuck = timeout(MOMENT, store.extend(&owner, &held, MINUTE));
            if let Ok(extended) = stuck.await {
                assert_eq!(extended.len(), 1, "the second attempt may be quick");
            }
        }
        let extended = timeout(SOON, store.extend(&owner, &held, MINUTE).all()).await;
        assert_eq!(extended.expect("a new connection answers").unwrap(), [true]);
    });
}

/// Calls that take long held all connections, and heartbeats waited for one of them.
#[test]
fn heartbeat_does_not_wait_for_the_connections_of_calls() {
    run(|bench| async move {
        let builder = PostgresStore::builder(&*bench.url).queue(&*bench.queue);
        let store = builder.connections(1).open().await.unwrap();
        store.add(&[add("a"), add("b")]).all().await.unwrap();
        let owner = request(1).owner;
        let held = [done(&lease(&store, 1).await[0]).hold];
        let mut other = connect(&bench.url).await;
        let transaction = other.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("b")]).await.unwrap();
        let stuck = store.clone();
        let stuck = tokio::spawn(async move { stuck.remove(&[key("b")]).await });
        bench.until_blocked_by(holder).await;
        let extended = timeout(SOON, store.extend(&owner, &held, MINUTE).all()).await;
        assert_eq!(extended.expect("another connection answers").unwrap(), [true]);
        assert!(!stuck.is_finished());
        transaction.rollback().await.unwrap();
        assert!(stuck.await.unwrap()[0].as_ref().unwrap());
    });
}

/// Returns the server processes that the transaction of `holder` blocks.
async fn blocked(bench: &Bench, holder: i32) -> Vec<i32> {
    let text = "select pid from pg_stat_activity where $1 = any (pg_blocking_pids(pid))";
    let rows = bench.client.query(text, &[&holder]).await.expect("the server answers");
    rows.iter().map(|row| row.get(0)).collect()
}

/// The connection returned to the pool with an unread answer, and the next call waited for
/// that.
#[test]
fn dropped_call_closes_its_connection() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let mut other = connect(&bench.url).await;
        let transaction = other.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();
        let name = new_name();
        let url = format!("{}?application_name={name}", bench.url);
        let store = PostgresStore::builder(url).queue(&*bench.queue).connections(1);
        let store = store.open().await.unwrap();
        let removing = {
            let store = store.clone();
            tokio::spawn(async move { store.remove(&[key("a")]).await })
        };
        let process = loop {
            if let [process] = blocked(&bench, holder).await[..] {
                break process;
            }
        };
        removing.abort();
        removing.await.unwrap_err();
        transaction.rollback().await.unwrap();
        let is_gone = "select count(*) = 0 from pg_stat_activity where pid = $1";
        let gone = async || {
            let row = bench.client.query_one(is_gone, &[&process]).await.unwrap();
            row.get::<_, bool>(0)
        };
        while !gone().await {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.stats().await.unwrap().processing, 0);
    });
}

/// One after the other, each caller waits for the time limits of all before it.
#[test]
fn concurrent_callers_connect_at_the_same_time() {
    run(|bench| async move {
        let proxy = Proxy::start(&bench.url).await;
        let builder = PostgresStore::builder(&*proxy.url).queue(&*bench.queue);
        let store = builder.open().await.unwrap();
        proxy.silence();
        proxy.hang();
        let before = proxy.accepted();
        let calls: Vec<_> = (0..4)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.stats().await })
            })
            .collect();
        // One of them uses the old connection.
        while proxy.accepted() < before + 3 {
            tokio::task::yield_now().await;
        }
        assert!(calls.iter().all(|call| !call.is_finished()));
        calls.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// The listener of a store ended with its runtime, and was never started again.
#[test]
fn waiter_is_woken_after_its_runtime_was_replaced() {
    let Some(url) = crate::tools::url() else { return };
    let queue = new_name();
    let store = crate::tools::block_on(async {
        let store = PostgresStore::builder(&*url).queue(&*queue).open().await.unwrap();
        store.wait(Duration::ZERO).await.unwrap();
        store
    });
    crate::tools::block_on(async {
        assert!(lease(&store, 1).await.is_empty());
        store.wait(Duration::from_millis(1)).await.unwrap();
        let listening = format!(
            "select count(*) from pg_stat_activity where query = 'listen \"\"\"requeue\"\".' || \
             (select id from requeue.queue where name = '{queue}') || '\"'"
        );
        let client = connect(&url).await;
        let listens = async || {
            let row = client.query_one(&listening, &[]).await.unwrap();
            row.get::<_, i64>(0) == 1
        };
        while !listens().await {
            store.wait(Duration::from_millis(1)).await.unwrap();
        }
    });
}
