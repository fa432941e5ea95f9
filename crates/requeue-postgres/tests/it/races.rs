//! What happens when two transactions meet on one key. No test here waits for time to
//! pass: each asks the server whether a statement waits.

use std::slice;
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_postgres::PostgresStore;
use requeue_store::{Add, FinishRequest, Finished, Phase, Receipt, Store, When};

use crate::tools::{
    Bench, add, connect, done, finish, key, lease, patiently, pid, request, run,
};

/// A `done` that decided in one statement what to do with a row, by branches, did neither:
/// the add that it had waited for was in no branch's snapshot. The key stayed with its
/// worker until the lease ran out.
#[test]
fn a_done_that_waits_for_an_add_sees_it() {
    run(|bench| sees_an_add(bench, Finish::Done));
}

/// The same for an end that is decided by what the row holds: the dead lose no add.
#[test]
fn a_bury_that_waits_for_an_add_sees_it() {
    run(|bench| sees_an_add(bench, Finish::GiveUp));
}

async fn sees_an_add(bench: Bench, how: Finish) {
    bench.store.add(&[add("a")]).await.expect("it is added");
    let grant = lease(&bench.store, 1).await.remove(0);
    let mut producer = connect(&bench.url).await;
    let transaction = producer.transaction().await.expect("it begins");
    let holder = pid(&transaction).await;
    bench.store.add_in(&transaction, &[add("a")]).await.expect("it is added");

    let (store, ends) =
        (bench.store.clone(), [FinishRequest { finish: how, ..done(&grant) }]);
    let finishing = tokio::spawn(async move { finish(&store, &ends).await });
    bench.somebody_waits_for(holder).await;
    transaction.commit().await.expect("it commits");

    let finished = finishing.await.expect("no panic");
    assert_eq!(finished, [Finished::Requeued]);
    let next = lease(&bench.store, 1).await;
    assert!(next[0].key == key("a") && next[0].token > grant.token);
}

/// Locking and extending in one statement told the holder that the lease was extended, and
/// extended the row as it had been before the add: none.
#[test]
fn an_extension_that_waits_for_an_add_extends_the_lease() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();

        let (store, held) = (bench.store.clone(), [done(&grant).hold]);
        let day = Duration::from_secs(86_400);
        let extending = tokio::spawn(async move {
            let owner = request(1).owner;
            patiently(|| store.extend(&owner, &held, day)).await
        });
        bench.somebody_waits_for(holder).await;
        transaction.commit().await.unwrap();
        assert_eq!(extending.await.unwrap(), [true]);
        let more_in = bench.store.lease(&request(1)).await.unwrap().more_in.unwrap();
        assert!(more_in > day / 2, "{more_in:?}");
    });
}

/// An add that did nothing to a key which was ready let a worker take it, run on the old
/// data and finish it before the producer's transaction was seen: the update was lost.
#[test]
fn a_key_that_is_added_in_a_transaction_is_not_handed_out_before_it_commits() {
    run(|bench| async move {
        bench.store.add(&[add("a"), add("b")]).await.unwrap();
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

/// Adds a key with a priority, in a transaction that commits while an add of the usual one
/// waits for it: the priority with which the key comes. It is the first priority of the
/// queue, so the second add cannot have heard of it before it waited.
async fn meets_an_add(bench: Bench, first: Add) -> i8 {
    let mut producer = connect(&bench.url).await;
    let transaction = producer.transaction().await.expect("it begins");
    let holder = pid(&transaction).await;
    bench.store.add_in(&transaction, &[first]).await.expect("it is added");

    let store = bench.store.clone();
    let adding = tokio::spawn(async move {
        let adds = [add("a")];
        patiently(|| store.add(&adds)).await
    });
    bench.somebody_waits_for(holder).await;
    transaction.commit().await.expect("it commits");
    adding.await.expect("no panic");
    lease(&bench.store, 1).await[0].priority
}

#[test]
fn an_add_that_waits_for_one_of_a_higher_priority_keeps_that() {
    run(|bench| async move {
        let later = When::After(Duration::from_secs(60));
        let first = Add { when: later, priority: 5, ..add("a") };
        assert_eq!(meets_an_add(bench, first).await, 5);
    });
}

#[test]
fn an_add_that_waits_for_one_of_a_lower_priority_raises_that() {
    run(|bench| async move {
        let first = Add { priority: -5, ..add("a") };
        assert_eq!(meets_an_add(bench, first).await, 0);
    });
}

/// Lets a worker find nothing, the first one in a minute: whether the queue still says that
/// it has priorities.
async fn stays_ranked(bench: &Bench) -> bool {
    let forget = "update requeue.queue set idle_at = 0 where id = $1";
    let queue = bench.queue_id().await;
    bench.client.execute(forget, &[&queue]).await.expect("it is forgotten");
    assert!(lease(&bench.store, 9).await.is_empty());
    let text = "select has_priorities from requeue.queue where id = $1";
    bench.client.query_one(text, &[&queue]).await.expect("the queue is there").get(0)
}

#[test]
fn a_queue_that_has_no_priorities_any_more_says_so() {
    run(|bench| async move {
        let ranked = |name, when| Add { when, priority: 5, ..add(name) };
        let later = When::After(Duration::from_secs(60));
        let adds = [ranked("a", When::Now), ranked("b", later)];
        bench.store.add(&adds).await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        assert!(stays_ranked(&bench).await, "a and b have");
        bench.store.finish(&[done(&grant)]).await.unwrap();
        assert!(stays_ranked(&bench).await, "b has");
        bench.store.remove(&[key("b")]).await.unwrap();
        assert!(!stays_ranked(&bench).await, "none has");

        bench.store.add(&[add("usual"), ranked("a", When::Now)]).await.unwrap();
        let keys: Vec<_> =
            lease(&bench.store, 9).await.into_iter().map(|grant| grant.key).collect();
        assert_eq!(keys, [key("a"), key("usual")]);
    });
}

#[test]
fn a_queue_says_that_it_has_priorities_while_a_transaction_adds_one() {
    run(|bench| async move {
        let ranked = Add { priority: 5, ..add("a") };
        bench.store.add(slice::from_ref(&ranked)).await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        bench.store.finish(&[done(&grant)]).await.unwrap();
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        bench.store.add_in(&transaction, &[ranked]).await.unwrap();

        assert!(stays_ranked(&bench).await);
        transaction.commit().await.unwrap();
        bench.store.add(&[add("usual")]).await.unwrap();
        assert_eq!(lease(&bench.store, 9).await[0].key, key("a"));
        assert!(stays_ranked(&bench).await);
    });
}

#[test]
fn a_key_that_is_added_in_a_transaction_that_is_rolled_back_was_never_there() {
    run(|bench| async move {
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();
        assert!(lease(&bench.store, 9).await.is_empty());
        transaction.rollback().await.unwrap();
        assert!(lease(&bench.store, 9).await.is_empty());
        assert_eq!(bench.store.look(&[key("a")]).await.unwrap()[0].phase, Phase::Absent);
    });
}

/// A batch that is written as if all its keys were new.
fn batch() -> Vec<Add> {
    ["c", "a", "b", "h", "g", "f", "e", "d"].map(add).into()
}

/// What became of each add.
fn added(receipts: &[Receipt]) -> Vec<Added> {
    receipts.iter().map(|receipt| receipt.added).collect()
}

/// Adds a batch while a transaction is open that adds two of its keys; `end` ends that.
async fn batch_meets(bench: &Bench, end: &str) -> Vec<Added> {
    let producer = connect(&bench.url).await;
    producer.batch_execute("begin").await.expect("it begins");
    let holder = pid(&producer).await;
    let both = [add("b"), add("e")];
    bench.store.add_in(&producer, &both).await.expect("they are added");

    let store = bench.store.clone();
    let adding = tokio::spawn(async move {
        let adds = batch();
        patiently(|| store.add(&adds)).await
    });
    bench.somebody_waits_for(holder).await;
    producer.batch_execute(end).await.expect("it ends");
    added(&adding.await.expect("no panic"))
}

#[test]
fn a_batch_of_new_keys_that_waits_for_an_add_sees_it() {
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
fn a_batch_of_new_keys_that_waits_for_an_add_that_is_undone_is_new() {
    run(|bench| async move {
        let added = batch_meets(&bench, "rollback").await;
        assert_eq!(added, [Added::Ready; 8]);
        assert_eq!(lease(&bench.store, 99).await.len(), 8);
    });
}

#[test]
fn a_batch_of_new_keys_that_waits_for_the_end_of_a_lease_is_new() {
    run(|bench| async move {
        bench.store.add(&[add("b")]).await.unwrap();
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
            patiently(|| store.add(&adds)).await
        });
        bench.somebody_waits_for(holder).await;
        transaction.commit().await.unwrap();
        assert_eq!(added(&adding.await.unwrap()), [Added::Ready; 8]);
        assert_eq!(lease(&bench.store, 99).await.len(), 8);
    });
}

#[test]
fn a_batch_in_which_keys_are_processed_delayed_or_dead_is_added_as_one_by_one() {
    run(|bench| async move {
        let later = When::After(Duration::from_secs(60));
        bench.store.add(&[add("a"), add("b")]).await.unwrap();
        let grants = lease(&bench.store, 2).await;
        bench
            .store
            .finish(&[FinishRequest { finish: Finish::GiveUp, ..done(&grants[1]) }])
            .await
            .unwrap();
        bench.store.add(&[Add { when: later, ..add("d") }]).await.unwrap();

        let receipts = bench.store.add(&batch()).await.unwrap();
        let mut expected = [Added::Ready; 8];
        (expected[1], expected[2]) = (Added::Dirty, Added::Delayed);
        assert_eq!(added(&receipts), expected);
        assert_eq!(lease(&bench.store, 99).await.len(), 6);
        let stats = bench.store.stats().await.unwrap();
        assert_eq!((stats.dirty, stats.delayed, stats.dead), (1, 2, 0));
    });
}

#[test]
fn new_keys_of_a_batch_wait_and_come_as_they_are_told() {
    run(|bench| async move {
        let later = When::After(Duration::from_secs(60));
        let mut adds = batch();
        adds[0].when = later;
        adds[7].priority = 5;
        let receipts = bench.store.add(&adds).await.unwrap();
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

/// Between its last look from the front and this one the line has moved on: the key has a
/// place behind which the store begins.
#[test]
fn a_key_whose_transaction_took_longer_than_others_is_not_overlooked() {
    run(|bench| async move {
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        bench.store.add_in(&transaction, &[add("early")]).await.unwrap();
        for name in ["a", "b", "c"] {
            bench.store.add(&[add(name)]).await.unwrap();
            assert_eq!(lease(&bench.store, 1).await[0].key, key(name));
        }
        transaction.commit().await.unwrap();
        assert_eq!(lease(&bench.store, 1).await[0].key, key("early"));
    });
}

/// A key that another call has moved to an earlier place than the last one leased was left
/// there until the next look from the front, on a busy machine for seconds.
#[test]
fn a_due_key_before_the_last_leased_place_is_not_overlooked() {
    run(|bench| async move {
        bench.store.add(&[add("far")]).await.unwrap();
        let queue = bench.queue_id().await;
        let move_far = "update requeue.item set seq = seq + (1 << 30) where queue = $1";
        bench.client.execute(move_far, &[&queue]).await.unwrap();
        assert_eq!(lease(&bench.store, 1).await[0].key, key("far"));
        let when = When::After(Duration::from_secs(3600));
        bench.store.add(&[Add { when, ..add("due") }]).await.unwrap();
        let make_due =
            "update requeue.item set delayed_until = 1 where queue = $1 and key = 'due'";
        bench.client.execute(make_due, &[&queue]).await.unwrap();
        assert_eq!(lease(&bench.store, 9).await[0].key, key("due"));
    });
}

#[test]
fn batches_that_meet_in_any_order_do_not_wait_for_each_other_for_ever() {
    run(|bench| async move {
        let names: Vec<_> = (0..50).map(|n| n.to_string()).collect();
        let forth: Vec<_> = names.iter().map(|name| add(name)).collect();
        let back: Vec<_> = forth.iter().rev().cloned().collect();
        let adding = |adds: Vec<_>| {
            let store = bench.store.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    patiently(|| store.add(&adds)).await;
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

/// Rows are deleted by where they are, which is known by their token alone.
#[test]
fn a_token_ends_no_lease_of_another_key_in_the_same_call() {
    run(|bench| async move {
        bench.store.add(&[add("a"), add("b")]).await.unwrap();
        let grants = lease(&bench.store, 2).await;
        let [a, b] = [done(&grants[0]), done(&grants[1])];
        let [mut one, mut other] = [a.clone(), b.clone()];
        std::mem::swap(&mut one.hold.token, &mut other.hold.token);
        let refused = bench.store.finish(&[one, other]).await.unwrap();
        assert_eq!(refused, [Finished::LeaseLost, Finished::LeaseLost]);
        let ended = bench.store.finish(&[a, b]).await.unwrap();
        assert_eq!(ended, [Finished::Done, Finished::Done]);
    });
}

#[test]
fn ends_of_a_batch_that_wait_for_an_add_see_it() {
    run(|bench| async move {
        bench.store.add(&batch()).await.unwrap();
        let grants = lease(&bench.store, 8).await;
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("b")]).await.unwrap();

        let store = bench.store.clone();
        let ends: Vec<_> = grants.iter().map(done).collect();
        let finishing = tokio::spawn(async move { finish(&store, &ends).await });
        bench.somebody_waits_for(holder).await;
        transaction.commit().await.unwrap();
        let mut expected = [Finished::Done; 8];
        expected[2] = Finished::Requeued;
        assert_eq!(finishing.await.unwrap(), expected);
        let again = lease(&bench.store, 99).await;
        assert!(again.len() == 1 && again[0].key == key("b"));
    });
}

/// All or nothing is told of a batch first; who lost a lease must not be told that it ended.
#[test]
fn a_lease_that_was_lost_is_told_among_others_of_a_batch() {
    run(|bench| async move {
        bench.store.add(&batch()).await.unwrap();
        let grants = lease(&bench.store, 8).await;
        let other = PostgresStore::builder(&*bench.url).queue(&*bench.queue).open().await;
        other.unwrap().finish(&[done(&grants[2])]).await.unwrap();
        let ends: Vec<_> = grants.iter().map(done).collect();
        let mut expected = [Finished::Done; 8];
        expected[2] = Finished::LeaseLost;
        assert_eq!(bench.store.finish(&ends).await.unwrap(), expected);
        assert_eq!(bench.store.finish(&ends).await.unwrap(), [Finished::LeaseLost; 8]);
    });
}

/// Rows that were deleted by a list of their addresses were locked in the order of those,
/// and an add that locked the same keys in their order waited until one of both was undone.
#[test]
fn ends_wait_for_keys_in_the_order_of_keys() {
    run(|bench| async move {
        for name in ["b", "a"] {
            bench.store.add(&[add(name)]).await.unwrap();
        }
        let grants = lease(&bench.store, 2).await;
        let mut producer = connect(&bench.url).await;
        let transaction = producer.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();

        // It does not know where the rows are.
        let other = PostgresStore::builder(&*bench.url).queue(&*bench.queue).open().await;
        let (other, ends) = (other.unwrap(), [done(&grants[0]), done(&grants[1])]);
        let finishing = tokio::spawn(async move { finish(&other, &ends).await });
        bench.somebody_waits_for(holder).await;
        let lock =
            "select from requeue.item where queue = $1 and key = 'b' for update nowait";
        transaction.query_one(lock, &[&bench.queue_id().await]).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(finishing.await.unwrap(), [Finished::Done, Finished::Requeued]);
    });
}

#[test]
fn a_lease_is_ended_by_a_store_that_did_not_hand_it_out() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).await.unwrap();
        let grant = lease(&bench.store, 1).await.remove(0);
        let other = PostgresStore::builder(&*bench.url).queue(&*bench.queue).open().await;
        let ended = other.unwrap().finish(&[done(&grant)]).await.unwrap();
        assert_eq!(ended, [Finished::Done]);
        assert_eq!(bench.store.look(&[key("a")]).await.unwrap()[0].phase, Phase::Absent);
    });
}
