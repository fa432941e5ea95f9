//! Two transactions on one key. No test waits for time to pass: each asks the server whether
//! a statement is blocked.

use std::num::NonZeroU32;
use std::slice;
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_postgres::PostgresStore;
use requeue_store::{
    Add, FinishRequest, Finished, Phase, Rate, Receipt, RepliesExt, Store, TakeRequest,
    When,
};

use crate::tools::{
    Bench, add, connect, done, finish, key, lease, patiently, pid, request, run,
};

/// A `done` with two branches in one statement did neither: the add that it had waited for
/// was in no branch's snapshot. The key was processing until its lease expired.
#[test]
fn done_that_waits_for_an_add_sees_it() {
    run(|bench| sees_an_add(bench, Finish::Done));
}

/// The same for a finish that depends on the row: a dead key loses no add.
#[test]
fn give_up_that_waits_for_an_add_sees_it() {
    run(|bench| sees_an_add(bench, Finish::GiveUp));
}

async fn sees_an_add(bench: Bench, how: Finish) {
    bench.store.add(&[add("a")]).all().await.expect("the key is added");
    let grant = lease(&bench.store, 1).await.remove(0);
    let mut producer = connect(&bench.url).await;
    let transaction = producer.transaction().await.expect("the transaction begins");
    let holder = pid(&transaction).await;
    bench.store.add_in(&transaction, &[add("a")]).await.expect("the key is added");

    let (store, ends) =
        (bench.store.clone(), [FinishRequest { finish: how, ..done(&grant) }]);
    let finishing = tokio::spawn(async move { finish(&store, &ends).await });
    bench.until_blocked_by(holder).await;
    transaction.commit().await.expect("the transaction commits");

    let finished = finishing.await.expect("no panic");
    assert_eq!(finished, [Finished::Requeued]);
    let next = lease(&bench.store, 1).await;
    assert!(next[0].key == key("a") && next[0].token > grant.token);
}

/// Locking and extending in one statement updated the row version from before the add, so
/// nothing, and reported an extended lease.
#[test]
fn extension_that_waits_for_an_add_extends_the_lease() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();

        let (store, held) = (bench.store.clone(), [done(&grant).hold]);
        let day = Duration::from_secs(86_400);
        let extending = tokio::spawn(async move {
            let owner = request(1).owner;
            patiently(|| store.extend(&owner, &held, day).all()).await
        });
        bench.until_blocked_by(holder).await;
        transaction.commit().await.unwrap();
        assert_eq!(extending.await.unwrap(), [true]);
        let more_in = bench.store.lease(&request(1)).await.unwrap().more_in.unwrap();
        assert!(more_in > day / 2, "{more_in:?}");
    });
}

/// An add that did not lock a ready key let a worker finish it on the old data before the
/// producer's transaction committed: the update was lost.
#[test]
fn key_added_in_a_transaction_is_not_leased_before_the_commit() {
    run(|bench| async move {
        bench.store.add(&[add("a"), add("b")]).all().await.unwrap();
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();

        let before = lease(&bench.store, 9).await;
        assert_eq!(before.len(), 1);
        assert_eq!(before[0].key, key("b"));
        transaction.commit().await.unwrap();
        assert_eq!(lease(&bench.store, 9).await[0].key, key("a"));
    });
}

/// Adds a key with a priority, in a transaction that commits while an add without one waits
/// for it. Returns the priority of the lease. It is the first priority of the queue, so the
/// second add cannot know it before it waits.
async fn meets_an_add(bench: Bench, first: Add) -> i8 {
    let mut producer = connect(&bench.url).await;
    let transaction = producer.transaction().await.expect("the transaction begins");
    let holder = pid(&transaction).await;
    bench.store.add_in(&transaction, &[first]).await.expect("the key is added");

    let store = bench.store.clone();
    let adding = tokio::spawn(async move {
        let adds = [add("a")];
        patiently(|| store.add(&adds).all()).await
    });
    bench.until_blocked_by(holder).await;
    transaction.commit().await.expect("the transaction commits");
    adding.await.expect("no panic");
    lease(&bench.store, 1).await[0].priority
}

#[test]
fn add_that_waits_for_a_higher_priority_keeps_it() {
    run(|bench| async move {
        let later = When::After(Duration::from_secs(60));
        let first = Add { when: later, priority: 5, ..add("a") };
        assert_eq!(meets_an_add(bench, first).await, 5);
    });
}

#[test]
fn add_that_waits_for_a_lower_priority_raises_it() {
    run(|bench| async move {
        let first = Add { priority: -5, ..add("a") };
        assert_eq!(meets_an_add(bench, first).await, 0);
    });
}

/// Lets a worker find no key, the first one in a minute. Returns whether the queue is still
/// marked as having priorities.
async fn stays_marked(bench: &Bench) -> bool {
    let forget = "update requeue.queue set idle_at = 0 where id = $1";
    let queue = bench.queue_id().await;
    bench.client.execute(forget, &[&queue]).await.expect("the update succeeds");
    assert!(lease(&bench.store, 9).await.is_empty());
    let text = "select has_priorities from requeue.queue where id = $1";
    bench.client.query_one(text, &[&queue]).await.expect("the queue exists").get(0)
}

#[test]
fn queue_without_priorities_is_unmarked() {
    run(|bench| async move {
        let ranked = |name, when| Add { when, priority: 5, ..add(name) };
        let later = When::After(Duration::from_secs(60));
        let adds = [ranked("a", When::Now), ranked("b", later)];
        bench.store.add(&adds).all().await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        assert!(stays_marked(&bench).await, "a and b have a priority");
        bench.store.finish(&[done(&grant)]).all().await.unwrap();
        assert!(stays_marked(&bench).await, "b has a priority");
        bench.store.remove(&[key("b")]).all().await.unwrap();
        assert!(!stays_marked(&bench).await, "no key has a priority");

        bench.store.add(&[add("usual"), ranked("a", When::Now)]).all().await.unwrap();
        let keys: Vec<_> =
            lease(&bench.store, 9).await.into_iter().map(|grant| grant.key).collect();
        assert_eq!(keys, [key("a"), key("usual")]);
    });
}

#[test]
fn queue_stays_marked_while_a_transaction_adds_a_priority() {
    run(|bench| async move {
        let ranked = Add { priority: 5, ..add("a") };
        bench.store.add(slice::from_ref(&ranked)).all().await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        bench.store.finish(&[done(&grant)]).all().await.unwrap();
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        bench.store.add_in(&transaction, &[ranked]).await.unwrap();

        assert!(stays_marked(&bench).await);
        transaction.commit().await.unwrap();
        bench.store.add(&[add("usual")]).all().await.unwrap();
        assert_eq!(lease(&bench.store, 9).await[0].key, key("a"));
        assert!(stays_marked(&bench).await);
    });
}

#[test]
fn key_added_in_a_rolled_back_transaction_does_not_exist() {
    run(|bench| async move {
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();
        assert!(lease(&bench.store, 9).await.is_empty());
        transaction.rollback().await.unwrap();
        assert!(lease(&bench.store, 9).await.is_empty());
        assert_eq!(
            bench.store.look(&[key("a")]).all().await.unwrap()[0].phase,
            Phase::Absent
        );
    });
}

/// A batch that is inserted as if all its keys were new.
fn batch() -> Vec<Add> {
    ["c", "a", "b", "h", "g", "f", "e", "d"].map(add).into()
}

/// Returns the result of each add.
fn added(receipts: &[Receipt]) -> Vec<Added> {
    receipts.iter().map(|receipt| receipt.added).collect()
}

/// Adds a batch while an open transaction has added two of its keys; `end` ends it.
async fn batch_meets(bench: &Bench, end: &str) -> Vec<Added> {
    let producer = connect(&bench.url).await;
    producer.batch_execute("begin").await.expect("the transaction begins");
    let holder = pid(&producer).await;
    let both = [add("b"), add("e")];
    bench.store.add_in(&producer, &both).await.expect("the keys are added");

    let store = bench.store.clone();
    let adding = tokio::spawn(async move {
        let adds = batch();
        patiently(|| store.add(&adds).all()).await
    });
    bench.until_blocked_by(holder).await;
    producer.batch_execute(end).await.expect("the transaction ends");
    added(&adding.await.expect("no panic"))
}

#[test]
fn batch_of_new_keys_that_waits_for_an_add_sees_it() {
    run(|bench| async move {
        let added = batch_meets(&bench, "commit").await;
        let (ready, there) = (Added::Ready, Added::Duplicate);
        let expected = [ready, ready, there, ready, ready, ready, there, ready];
        assert_eq!(added, expected);
        let keys: Vec<_> =
            lease(&bench.store, 99).await.into_iter().map(|grant| grant.key).collect();
        assert_eq!(keys, ["b", "e", "c", "a", "h", "g", "f", "d"].map(key));
    });
}

#[test]
fn batch_that_waits_for_a_rolled_back_add_is_new() {
    run(|bench| async move {
        let added = batch_meets(&bench, "rollback").await;
        assert_eq!(added, [Added::Ready; 8]);
        assert_eq!(lease(&bench.store, 99).await.len(), 8);
    });
}

#[test]
fn batch_that_waits_for_a_finish_is_new() {
    run(|bench| async move {
        bench.store.add(&[add("b")]).all().await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        let mut worker = connect(&bench.url).await;
        let transaction = worker.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        let (queue, token) =
            (bench.queue_id().await, i64::try_from(grant.token.0).unwrap());
        let finish = "select * from requeue.finish($1, array[$2::bytea], array[$3::bigint], \
                      array[0], array['succeed'], null, null, null, null, null, null)";
        let row =
            transaction.query_one(finish, &[&queue, &&*grant.key, &token]).await.unwrap();
        assert_eq!(row.get::<_, Vec<i32>>("done"), [1]);

        let store = bench.store.clone();
        let adding = tokio::spawn(async move {
            let adds = batch();
            patiently(|| store.add(&adds).all()).await
        });
        bench.until_blocked_by(holder).await;
        transaction.commit().await.unwrap();
        assert_eq!(added(&adding.await.unwrap()), [Added::Ready; 8]);
        assert_eq!(lease(&bench.store, 99).await.len(), 8);
    });
}

#[test]
fn batch_with_processing_delayed_and_dead_keys_is_added_as_one_by_one() {
    run(|bench| async move {
        let later = When::After(Duration::from_secs(60));
        bench.store.add(&[add("a"), add("b")]).all().await.unwrap();
        let grants = lease(&bench.store, 2).await;
        bench
            .store
            .finish(&[FinishRequest { finish: Finish::GiveUp, ..done(&grants[1]) }])
            .all()
            .await
            .unwrap();
        bench.store.add(&[Add { when: later, ..add("d") }]).all().await.unwrap();

        let receipts = bench.store.add(&batch()).all().await.unwrap();
        let mut expected = [Added::Ready; 8];
        (expected[1], expected[2]) = (Added::Dirty, Added::Delayed);
        assert_eq!(added(&receipts), expected);
        assert_eq!(lease(&bench.store, 99).await.len(), 6);
        let stats = bench.store.stats().await.unwrap();
        assert_eq!((stats.dirty, stats.delayed, stats.dead), (1, 2, 0));
    });
}

#[test]
fn new_keys_of_a_batch_keep_their_delays_and_priorities() {
    run(|bench| async move {
        let later = When::After(Duration::from_secs(60));
        let mut adds = batch();
        adds[0].when = later;
        adds[7].priority = 5;
        let receipts = bench.store.add(&adds).all().await.unwrap();
        assert_eq!(
            (receipts[0].added, receipts[0].delay),
            (Added::Delayed, Duration::from_secs(60))
        );
        assert_eq!(added(&receipts[1..]), [Added::Ready; 7]);
        let keys: Vec<_> =
            lease(&bench.store, 99).await.into_iter().map(|grant| grant.key).collect();
        assert_eq!(keys, ["d", "a", "b", "h", "g", "f", "e"].map(key));
    });
}

/// The watermark has moved past the key before its transaction commits.
#[test]
fn key_of_a_long_transaction_is_not_overlooked() {
    run(|bench| async move {
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        bench.store.add_in(&transaction, &[add("early")]).await.unwrap();
        for name in ["a", "b", "c"] {
            bench.store.add(&[add(name)]).all().await.unwrap();
            assert_eq!(lease(&bench.store, 1).await[0].key, key(name));
        }
        transaction.commit().await.unwrap();
        assert_eq!(lease(&bench.store, 1).await[0].key, key("early"));
    });
}

/// A due key with a lower position than the last leased one was overlooked until the next
/// lease from the front, on a busy machine for seconds.
#[test]
fn due_key_below_the_watermark_is_not_overlooked() {
    run(|bench| async move {
        bench.store.add(&[add("far")]).all().await.unwrap();
        let queue = bench.queue_id().await;
        let move_far = "update requeue.item set seq = seq + (1 << 30) where queue = $1";
        bench.client.execute(move_far, &[&queue]).await.unwrap();
        assert_eq!(lease(&bench.store, 1).await[0].key, key("far"));
        let when = When::After(Duration::from_secs(3600));
        bench.store.add(&[Add { when, ..add("due") }]).all().await.unwrap();
        let make_due =
            "update requeue.item set delayed_until = 1 where queue = $1 and key = 'due'";
        bench.client.execute(make_due, &[&queue]).await.unwrap();
        assert_eq!(lease(&bench.store, 9).await[0].key, key("due"));
    });
}

#[test]
fn batches_in_any_order_do_not_deadlock() {
    run(|bench| async move {
        let names: Vec<_> = (0..50).map(|n| n.to_string()).collect();
        let forth: Vec<_> = names.iter().map(|name| add(name)).collect();
        let back: Vec<_> = forth.iter().rev().cloned().collect();
        let adding = |adds: Vec<_>| {
            let store = bench.store.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    patiently(|| store.add(&adds).all()).await;
                    let grants = lease(&store, 20).await;
                    let ends: Vec<_> = grants.iter().rev().map(done).collect();
                    finish(&store, &ends).await;
                }
            })
        };
        let tasks = [adding(forth), adding(back)];
        for task in tasks {
            task.await.unwrap();
        }
        let text =
            "select deadlocks from pg_stat_database where datname = current_database()";
        let row = bench.client.query_one(text, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 0);
    });
}

/// Rows were once found by their token alone.
#[test]
fn token_finishes_no_lease_of_another_key() {
    run(|bench| async move {
        bench.store.add(&[add("a"), add("b")]).all().await.unwrap();
        let grants = lease(&bench.store, 2).await;
        let [a, b] = [done(&grants[0]), done(&grants[1])];
        let [mut one, mut other] = [a.clone(), b.clone()];
        std::mem::swap(&mut one.hold.token, &mut other.hold.token);
        let refused = bench.store.finish(&[one, other]).all().await.unwrap();
        assert_eq!(refused, [Finished::LeaseLost, Finished::LeaseLost]);
        let ended = bench.store.finish(&[a, b]).all().await.unwrap();
        assert_eq!(ended, [Finished::Done, Finished::Done]);
    });
}

#[test]
fn batch_of_finishes_that_waits_for_an_add_sees_it() {
    run(|bench| async move {
        bench.store.add(&batch()).all().await.unwrap();
        let grants = lease(&bench.store, 8).await;
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("b")]).await.unwrap();

        let store = bench.store.clone();
        let ends: Vec<_> = grants.iter().map(done).collect();
        let finishing = tokio::spawn(async move { finish(&store, &ends).await });
        bench.until_blocked_by(holder).await;
        transaction.commit().await.unwrap();
        let mut expected = [Finished::Done; 8];
        expected[2] = Finished::Requeued;
        assert_eq!(finishing.await.unwrap(), expected);
        let again = lease(&bench.store, 99).await;
        assert!(again.len() == 1 && again[0].key == key("b"));
    });
}

/// A lost lease must not be reported as finished with the rest of its batch.
#[test]
fn lost_lease_in_a_batch_is_reported() {
    run(|bench| async move {
        bench.store.add(&batch()).all().await.unwrap();
        let grants = lease(&bench.store, 8).await;
        let other = PostgresStore::builder(&*bench.url).queue(&*bench.queue).open().await;
        other.unwrap().finish(&[done(&grants[2])]).all().await.unwrap();
        let ends: Vec<_> = grants.iter().map(done).collect();
        let mut expected = [Finished::Done; 8];
        expected[2] = Finished::LeaseLost;
        assert_eq!(bench.store.finish(&ends).all().await.unwrap(), expected);
        assert_eq!(
            bench.store.finish(&ends).all().await.unwrap(),
            [Finished::LeaseLost; 8]
        );
    });
}

/// Finishes once locked rows in the order of their addresses, and deadlocked with an add
/// that locked the same keys in key order.
#[test]
fn finishes_lock_keys_in_key_order() {
    run(|bench| async move {
        for name in ["b", "a"] {
            bench.store.add(&[add(name)]).all().await.unwrap();
        }
        let grants = lease(&bench.store, 2).await;
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();

        let other = PostgresStore::builder(&*bench.url).queue(&*bench.queue).open().await;
        let (other, ends) = (other.unwrap(), [done(&grants[0]), done(&grants[1])]);
        let finishing = tokio::spawn(async move { finish(&other, &ends).await });
        bench.until_blocked_by(holder).await;
        let lock =
            "select from requeue.item where queue = $1 and key = 'b' for update nowait";
        transaction.query_one(lock, &[&bench.queue_id().await]).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(finishing.await.unwrap(), [Finished::Done, Finished::Requeued]);
    });
}

#[test]
fn lease_is_finished_by_another_store() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        let other = PostgresStore::builder(&*bench.url).queue(&*bench.queue).open().await;
        let ended = other.unwrap().finish(&[done(&grant)]).all().await.unwrap();
        assert_eq!(ended, [Finished::Done]);
        assert_eq!(
            bench.store.look(&[key("a")]).all().await.unwrap()[0].phase,
            Phase::Absent
        );
    });
}

/// The clock was read before the lock. A call that waited for it took the arrival time of the
/// call before for one from a wrong clock, moved it back, and the rate was exceeded.
#[test]
fn take_that_waits_for_another_keeps_its_reservation() {
    run(|bench| async move {
        let interval = Duration::from_secs(60);
        let rate = Rate { interval, burst: NonZeroU32::MIN };
        let max_wait = 10 * interval;
        let take = TakeRequest { limiter: bench.queue.clone(), rate, n: 1, max_wait };
        bench.store.take(&take).await.unwrap();
        let mut other = connect(&bench.url).await;
        let transaction = other.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        let lock = "select from requeue.limiter where name = $1 for update";
        transaction.query_one(lock, &[&bench.queue]).await.unwrap();

        let store = bench.store.clone();
        let taking = tokio::spawn(async move { store.take(&take).await });
        bench.until_blocked_by(holder).await;
        // Another call that read the clock later and was faster.
        let faster = "update requeue.limiter set arrival = arrival + 60000000, \
                      arrival_at = requeue.now_micros(null) where name = $1 returning arrival";
        let before: i64 =
            transaction.query_one(faster, &[&bench.queue]).await.unwrap().get(0);
        transaction.commit().await.unwrap();
        taking.await.unwrap().unwrap();
        let after = "select arrival from requeue.limiter where name = $1";
        let after: i64 = other.query_one(after, &[&bench.queue]).await.unwrap().get(0);
        assert_eq!(after - before, 60_000_000);
    });
}
