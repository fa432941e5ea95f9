//! An open transaction blocks the keys that it added, and no others.
//!
//! A call that waits for a key times out. To know that it has waited that long, a test makes
//! a second call for the same key and waits until that one has timed out.

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_postgres::PostgresStore;
use requeue_store::{
    Add, Backoff, Error, ErrorKind, FinishRequest, Finished, Phase, Rate, RepliesExt,
    Store, When,
};
use tokio_postgres::Client;

use crate::tools::{Bench, add, connect, done, key, lease, pid, request, run};

/// Opens a transaction that has added these keys and stays open.
async fn transaction_with(bench: &Bench, adds: &[Add]) -> Client {
    let client = connect(&bench.url).await;
    client.batch_execute("begin").await.expect("the transaction begins");
    bench.store.add_in(&client, adds).await.expect("the keys are added");
    client
}

async fn commit(client: &Client) {
    client.batch_execute("commit").await.expect("the transaction commits");
}

fn batch() -> Vec<Add> {
    ["c", "a", "b", "h", "g", "f", "e", "d"].map(add).into()
}

/// Returns the answers. A busy key has none.
fn unless_busy<T>(results: Vec<Result<T, Error>>) -> Vec<Option<T>> {
    let answer = |result: Result<T, Error>| match result {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            assert!(error.to_string().contains("an open transaction"), "{error}");
            None
        }
    };
    results.into_iter().map(answer).collect()
}

/// An open transaction that had added a processing key blocked the finishes of all other
/// keys, until their leases expired. Later it made their whole batch busy.
#[test]
fn only_the_locked_key_of_a_batch_of_finishes_is_busy() {
    run(|bench| async move {
        bench.store.add(&batch()).all().await.unwrap();
        let grants = lease(&bench.store, 8).await;
        let transaction = transaction_with(&bench, &[add("b")]).await;

        let ends: Vec<_> = grants.iter().map(done).collect();
        let mut expected = [Some(Finished::Done); 8];
        expected[2] = None;
        assert_eq!(unless_busy(bench.store.finish(&ends).await), expected);
        let phase = bench.store.look(&[key("b")]).all().await.unwrap().remove(0).phase;
        assert!(matches!(phase, Phase::Processing { dirty: false, .. }), "{phase:?}");

        commit(&transaction).await;
        let ended = bench.store.finish(&ends[2..3]).all().await.unwrap();
        assert_eq!(ended, [Finished::Requeued]);
        let again = lease(&bench.store, 9).await;
        assert!(again.len() == 1 && again[0].key == key("b"));
    });
}

#[test]
fn finishes_of_all_kinds_do_not_wait_for_the_key_of_a_transaction() {
    run(|bench| async move {
        bench.store.add(&batch()[..5]).all().await.unwrap();
        let mut ends: Vec<_> = lease(&bench.store, 5).await.iter().map(done).collect();
        let minute = Duration::from_secs(60);
        ends[0].finish = Finish::Retry;
        ends[2].finish = Finish::GiveUp;
        ends[3].finish = Finish::RequeueAfter(minute);
        ends[4].finish = Finish::Release;
        let transaction = transaction_with(&bench, &[add("b")]).await;

        let expected = [
            Some(Finished::Delayed(Duration::from_millis(5))),
            Some(Finished::Done),
            None,
            Some(Finished::Delayed(minute)),
            Some(Finished::Requeued),
        ];
        assert_eq!(unless_busy(bench.store.finish(&ends).await), expected);
        commit(&transaction).await;
        let mut expected = [Finished::LeaseLost; 5];
        expected[2] = Finished::Requeued;
        assert_eq!(bench.store.finish(&ends).all().await.unwrap(), expected);
    });
}

#[test]
fn only_the_locked_key_of_a_batch_of_adds_is_busy() {
    run(|bench| async move {
        let transaction = transaction_with(&bench, &[add("b")]).await;
        let mut adds = batch();
        adds.push(add("b"));
        let added = unless_busy(bench.store.add(&adds).await);
        let added: Vec<_> =
            added.into_iter().map(|one| one.map(|one| one.added)).collect();
        let mut expected = [Some(Added::Ready); 9];
        (expected[2], expected[8]) = (None, None);
        assert_eq!(added, expected);
        assert_eq!(bench.store.stats().await.unwrap().ready, 7);

        commit(&transaction).await;
        let receipts = bench.store.add(&[add("b")]).all().await.unwrap();
        assert_eq!(receipts[0].added, Added::Duplicate);
        assert_eq!(lease(&bench.store, 99).await.len(), 8);
    });
}

#[test]
fn only_the_locked_key_of_a_batch_of_rate_limited_adds_is_busy() {
    run(|bench| async move {
        let transaction = transaction_with(&bench, &[add("b")]).await;
        let when = When::RateLimited(Backoff::default());
        let adds: Vec<_> = batch().into_iter().map(|add| Add { when, ..add }).collect();
        let added = unless_busy(bench.store.add(&adds).await);
        let added: Vec<_> =
            added.into_iter().map(|one| one.map(|one| one.added)).collect();
        let mut expected = [Some(Added::Delayed); 8];
        expected[2] = None;
        assert_eq!(added, expected);
        commit(&transaction).await;
    });
}

#[test]
fn only_the_locked_key_of_a_heartbeat_is_busy() {
    run(|bench| async move {
        bench.store.add(&batch()[..4]).all().await.unwrap();
        let grants = lease(&bench.store, 4).await;
        let transaction = transaction_with(&bench, &[add("b")]).await;

        let held: Vec<_> = grants.iter().map(|grant| done(grant).hold).collect();
        let day = Duration::from_secs(86_400);
        let owner = request(1).owner;
        let extended = unless_busy(bench.store.extend(&owner, &held, day).await);
        assert_eq!(extended, [Some(true), Some(true), None, Some(true)]);

        commit(&transaction).await;
        let extended = bench.store.extend(&owner, &held, day).all().await.unwrap();
        assert_eq!(extended, [true; 4]);
    });
}

#[test]
fn only_the_locked_key_of_several_is_not_removed_or_forgotten() {
    run(|bench| async move {
        bench.store.add(&batch()[..3]).all().await.unwrap();
        let transaction = transaction_with(&bench, &[add("b")]).await;
        let keys = ["c", "a", "b"].map(key);
        let forgotten = unless_busy(bench.store.forget(&keys).await);
        assert_eq!(forgotten, [Some(()), Some(()), None]);
        let removed = unless_busy(bench.store.remove(&keys).await);
        assert_eq!(removed, [Some(true), Some(true), None]);
        commit(&transaction).await;
        assert_eq!(bench.store.stats().await.unwrap().ready, 1);
    });
}

/// A heartbeat locked the row of its owner first, so leases of the same owner waited for
/// its keys.
#[test]
fn heartbeat_that_waits_for_a_key_does_not_block_its_owner() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let held = [done(&lease(&bench.store, 1).await[0]).hold];
        let queue = bench.queue_id().await;
        let long_ago = "update requeue.owner set seen = 0 where queue = $1";
        bench.client.execute(long_ago, &[&queue]).await.unwrap();
        let transaction = transaction_with(&bench, &[add("a")]).await;
        let holder = pid(&transaction).await;

        let store = bench.store.clone();
        let extending = tokio::spawn(async move {
            store.extend(&request(1).owner, &held, Duration::from_secs(60)).all().await
        });
        bench.until_blocked_by(holder).await;
        let note = "select from requeue.owner where queue = $1 for update nowait";
        bench.client.query_one(note, &[&queue]).await.unwrap();
        let error = extending.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        commit(&transaction).await;
    });
}

/// Waits for a locked key until the call times out.
async fn time_out(store: &PostgresStore, name: &str) {
    let error = store.add(&[add(name)]).all().await.expect_err("the key is locked");
    assert_eq!(error.kind(), ErrorKind::Busy);
}

#[test]
fn calls_that_are_not_split_wait_longer_for_a_transaction() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let transaction = transaction_with(&bench, &[add("a")]).await;
        let holder = pid(&transaction).await;
        let store = bench.store.clone();
        let removing = tokio::spawn(async move { store.remove(&[key("a")]).all().await });
        bench.until_blocked_by(holder).await;
        time_out(&bench.store, "a").await;
        assert!(!removing.is_finished());
        commit(&transaction).await;
        assert_eq!(removing.await.unwrap().unwrap(), [true]);
    });
}

#[test]
fn call_that_waited_for_its_whole_timeout_is_busy() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let builder = PostgresStore::builder(&*bench.url).queue(&*bench.queue);
        let hasty = builder.timeout(Duration::from_secs(1)).open().await.unwrap();
        let transaction = transaction_with(&bench, &[add("a")]).await;
        let error: Error = hasty.forget(&[key("a")]).all().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        commit(&transaction).await;
        hasty.forget(&[key("a")]).all().await.unwrap();
    });
}

/// An owner that lost the answer to a lease leases nothing before it has reclaimed.
#[test]
fn reclaim_lets_the_lease_of_a_locked_key_expire() {
    run(|bench| async move {
        bench.store.add(&[add("a"), add("b")]).all().await.unwrap();
        lease(&bench.store, 2).await;
        let transaction = transaction_with(&bench, &[add("a")]).await;
        assert_eq!(bench.store.reclaim(&request(1).owner, &[]).await.unwrap(), 1);
        assert_eq!(lease(&bench.store, 9).await[0].key, key("b"));
        commit(&transaction).await;
        assert_eq!(bench.store.reclaim(&request(1).owner, &[]).await.unwrap(), 2);
    });
}

#[test]
fn transaction_with_a_shared_rate_blocks_only_calls_with_a_rate() {
    run(|bench| async move {
        let rate = Rate { interval: Duration::from_millis(1), burst: NonZeroU32::MAX };
        let backoff = Backoff { rate: Some(rate), ..Backoff::default() };
        let paced = |name| Add { when: When::RateLimited(backoff), ..add(name) };
        let ranked = Add { priority: 5, ..add("ranked") };
        bench.store.add(std::slice::from_ref(&ranked)).all().await.unwrap();
        let transaction = transaction_with(&bench, &[paced("held")]).await;

        bench.store.add(&[add("a"), add("b"), ranked]).all().await.unwrap();
        let grants = lease(&bench.store, 9).await;
        assert_eq!(grants.len(), 3);
        assert!(lease(&bench.store, 9).await.is_empty());
        let held: Vec<_> = grants.iter().map(|grant| done(grant).hold).collect();
        let minute = Duration::from_secs(60);
        let extended = bench.store.extend(&request(1).owner, &held, minute).all().await;
        assert_eq!(extended.unwrap(), [true; 3]);
        let later = Finish::RequeueAfter(minute);
        let ends = [
            done(&grants[0]),
            FinishRequest { finish: later, ..done(&grants[1]) },
            FinishRequest { finish: Finish::Release, ..done(&grants[2]) },
        ];
        let expected = [Finished::Done, Finished::Delayed(minute), Finished::Requeued];
        assert_eq!(bench.store.finish(&ends).all().await.unwrap(), expected);

        let grant = lease(&bench.store, 1).await.remove(0);
        let retry = [FinishRequest { finish: Finish::Retry, backoff, ..done(&grant) }];
        assert_eq!(unless_busy(bench.store.finish(&retry).await), [None]);
        let error = bench.store.add(&[paced("c")]).all().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        commit(&transaction).await;
        bench.store.add(&[paced("c")]).all().await.unwrap();
        let ended = bench.store.finish(&retry).all().await.unwrap();
        assert!(matches!(ended[0], Finished::Delayed(_)), "{ended:?}");
    });
}
