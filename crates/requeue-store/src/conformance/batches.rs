//! Batches: answers in the order of what was asked, and keys that are there twice
//! (rules 1 and 10).

use requeue::{Added, Finish};

use super::tools::{Trial, add, all_now, finish_request, hold, key, keys, many, millis, secs, worker};
use crate::{Backoff, FinishRequest, Finished, Hold, Stats, Token, When, Which};

pub(super) async fn answers_come_in_the_order_of_what_was_asked(t: Trial) {
    t.take("processing").await;
    t.add("ready").await;
    let adds = all_now(&keys(&["new", "ready", "processing", "other"]));
    let expected = [Added::Ready, Added::Duplicate, Added::Dirty, Added::Ready];
    assert_eq!(t.adds(&adds).await, expected);
}

pub(super) async fn an_empty_batch_is_answered_with_nothing(t: Trial) {
    assert!(t.adds(&[]).await.is_empty());
    assert!(t.finish_all(&[]).await.is_empty());
    assert!(t.store.look(&[]).await.expect("keys are looked up").is_empty());
    assert!(t.store.remove(&[]).await.expect("keys are removed").is_empty());
    t.store.forget(&[]).await.expect("failures are forgotten");
    let none = Which::Keys(Vec::new());
    assert_eq!(t.store.revive(&none).await.expect("dead keys are revived"), 0);
    assert_eq!(t.store.drop_dead(&none).await.expect("dead keys are dropped"), 0);
}

pub(super) async fn a_key_that_is_added_twice_is_added_once(t: Trial) {
    let adds = all_now(&keys(&["a", "b", "a", "a"]));
    let expected = [Added::Ready, Added::Ready, Added::Duplicate, Added::Duplicate];
    assert_eq!(t.adds(&adds).await, expected);
    assert_eq!(t.stats().await.ready, 2);
}

pub(super) async fn a_key_that_is_added_twice_while_processing_is_dirty_once(t: Trial) {
    t.take("a").await;
    let added = t.adds(&all_now(&keys(&["a", "a"]))).await;
    assert_eq!(added, [Added::Dirty, Added::Duplicate]);
}

pub(super) async fn of_delays_in_a_batch_the_earliest_wins(t: Trial) {
    let after = |seconds| add(&key("a"), When::After(secs(seconds)));
    let adds = [after(5), after(3), after(4), add(&key("a"), When::Now), after(1)];
    let expected =
        [Added::Delayed, Added::Delayed, Added::Duplicate, Added::Ready, Added::Delayed];
    assert_eq!(t.adds(&adds).await, expected);
    assert_eq!(t.shows("a").await, "ready, delayed 1s");
}

pub(super) async fn each_failure_in_a_batch_counts(t: Trial) {
    let limited = add(&key("a"), When::RateLimited(Backoff::default()));
    let receipts = t.receipts(&vec![limited; 3]).await;
    assert_eq!((receipts[0].added, receipts[0].delay), (Added::Delayed, millis(5)));
    assert_eq!(receipts[1].added, Added::Duplicate);
    assert_eq!(t.shows("a").await, "absent, delayed 5ms, failures 3");
}

pub(super) async fn a_dead_key_that_is_added_twice_in_a_batch_is_revived_once(t: Trial) {
    t.dead("a").await;
    let added = t.adds(&all_now(&keys(&["a", "a"]))).await;
    assert_eq!(added, [Added::Delayed, Added::Ready]);
    assert_eq!(t.shows("a").await, "ready, delayed 1000s");
}

pub(super) async fn the_second_end_of_a_lease_comes_too_late(t: Trial) {
    let grant = t.take("a").await;
    let ends = [finish_request(&grant, Finish::Retry), finish_request(&grant, Finish::Succeed)];
    let expected = [Finished::Delayed(millis(5)), Finished::LeaseLost];
    assert_eq!(t.finish_all(&ends).await, expected);
    assert_eq!(t.shows("a").await, "absent, delayed 5ms, failures 1");
}

pub(super) async fn every_sort_of_end_may_be_in_one_batch(t: Trial) {
    let finishes = [
        (Finish::Done, Finished::Done),
        (Finish::Release, Finished::Requeued),
        (Finish::Retry, Finished::Delayed(millis(5))),
        (Finish::GiveUp, Finished::Buried),
        (Finish::RequeueAfter(secs(3)), Finished::Delayed(secs(3))),
        (Finish::RetryAfter(secs(4)), Finished::Delayed(secs(4))),
        (Finish::Succeed, Finished::Done),
    ];
    t.receipts(&all_now(&many(finishes.len()))).await;
    let grants = t.lease(finishes.len()).await;
    let mut ends: Vec<_> =
        grants.iter().zip(&finishes).map(|(grant, (finish, _))| finish_request(grant, finish.clone())).collect();
    let unknown = Hold { key: key("unknown"), token: Token(1) };
    ends.insert(2, FinishRequest::new(unknown, Finish::Done));
    let mut expected: Vec<_> = finishes.iter().map(|(_, finished)| *finished).collect();
    expected.insert(2, Finished::LeaseLost);
    assert_eq!(t.finish_all(&ends).await, expected);
}

pub(super) async fn a_key_may_be_looked_up_removed_and_forgotten_twice(t: Trial) {
    t.add("a").await;
    let twice = keys(&["a", "a"]);
    let looks = t.store.look(&twice).await.expect("keys are looked up");
    assert_eq!(looks[0], looks[1]);
    assert_eq!(t.store.remove(&twice).await.expect("keys are removed"), [true, false]);
    t.store.forget(&twice).await.expect("failures are forgotten");
}

pub(super) async fn a_thousand_keys_may_be_in_any_batch(t: Trial) {
    let names = many(1000);
    let limited = |key| add(key, When::RateLimited(Backoff::default()));
    t.receipts(&names.iter().map(limited).collect::<Vec<_>>()).await;
    assert_eq!(t.stats().await.failing, 1000);
    let looks = t.store.look(&names).await.expect("keys are looked up");
    assert!(looks.iter().all(|look| look.delayed == Some(millis(5))));
    t.store.forget(&names).await.expect("failures are forgotten");
    assert_eq!(t.stats().await.failing, 0);
    let removed = t.store.remove(&names).await.expect("keys are removed");
    assert_eq!(removed, [true; 1000]);
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn a_thousand_leases_may_be_reclaimed_but_for_one(t: Trial) {
    t.receipts(&all_now(&many(1000))).await;
    let grants = t.lease(1000).await;
    let known = [hold(&grants[500])];
    let reclaimed = t.store.reclaim(&worker(), &known).await;
    assert_eq!(reclaimed.expect("leases are reclaimed"), 999);
    let stats = t.stats().await;
    assert_eq!((stats.ready, stats.processing), (999, 1));
}
