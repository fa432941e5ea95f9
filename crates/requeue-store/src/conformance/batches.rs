//! A batch is answered in the order of its requests and may repeat keys (rules 1 and 10).

use requeue::{Added, Finish};

use super::trial::{
    Trial, add, adds_now, finish_request, hold, key, keys, millis, numbered, secs, worker,
};
use crate::{RepliesExt, Backoff, FinishRequest, Finished, Hold, Stats, Token, When, Which};

pub(super) async fn answers_are_in_the_order_of_the_requests(t: Trial) {
    t.lease_new("processing").await;
    t.add("ready").await;
    let adds = adds_now(&keys(&["new", "ready", "processing", "other"]));
    let expected = [Added::Ready, Added::Duplicate, Added::Dirty, Added::Ready];
    assert_eq!(t.adds(&adds).await, expected);
}

pub(super) async fn empty_batch_gets_an_empty_answer(t: Trial) {
    assert!(t.adds(&[]).await.is_empty());
    assert!(t.finish_all(&[]).await.is_empty());
    assert!(t.store.look(&[]).all().await.expect("look succeeds").is_empty());
    assert!(t.store.remove(&[]).all().await.expect("remove succeeds").is_empty());
    t.store.forget(&[]).all().await.expect("forget succeeds");
    let none = Which::Keys(Vec::new());
    assert_eq!(t.store.revive(&none).await.expect("revive succeeds"), 0);
    assert_eq!(t.store.drop_dead(&none).await.expect("drop_dead succeeds"), 0);
}

pub(super) async fn key_added_twice_is_queued_once(t: Trial) {
    let adds = adds_now(&keys(&["a", "b", "a", "a"]));
    let expected = [Added::Ready, Added::Ready, Added::Duplicate, Added::Duplicate];
    assert_eq!(t.adds(&adds).await, expected);
    assert_eq!(t.stats().await.ready, 2);
}

pub(super) async fn leased_key_added_twice_is_dirty_once(t: Trial) {
    t.lease_new("a").await;
    let added = t.adds(&adds_now(&keys(&["a", "a"]))).await;
    assert_eq!(added, [Added::Dirty, Added::Duplicate]);
}

pub(super) async fn earliest_delay_of_a_batch_wins(t: Trial) {
    let after = |seconds| add(&key("a"), When::After(secs(seconds)));
    let adds = [after(5), after(3), after(4), add(&key("a"), When::Now), after(1)];
    let expected =
        [Added::Delayed, Added::Delayed, Added::Duplicate, Added::Ready, Added::Delayed];
    assert_eq!(t.adds(&adds).await, expected);
    assert_eq!(t.state("a").await, "ready, delayed 1s");
}

pub(super) async fn every_failure_of_a_batch_counts(t: Trial) {
    let limited = add(&key("a"), When::RateLimited(Backoff::default()));
    let receipts = t.receipts(&vec![limited; 3]).await;
    assert_eq!((receipts[0].added, receipts[0].delay), (Added::Delayed, millis(5)));
    assert_eq!(receipts[1].added, Added::Duplicate);
    assert_eq!(t.state("a").await, "absent, delayed 5ms, failures 3");
}

pub(super) async fn dead_key_added_twice_is_revived_once(t: Trial) {
    t.make_dead("a").await;
    let added = t.adds(&adds_now(&keys(&["a", "a"]))).await;
    assert_eq!(added, [Added::Delayed, Added::Ready]);
    assert_eq!(t.state("a").await, "ready, delayed 1000s");
}

pub(super) async fn second_finish_of_a_lease_is_refused(t: Trial) {
    let grant = t.lease_new("a").await;
    let requests =
        [finish_request(&grant, Finish::Retry), finish_request(&grant, Finish::Succeed)];
    let expected = [Finished::Delayed(millis(5)), Finished::LeaseLost];
    assert_eq!(t.finish_all(&requests).await, expected);
    assert_eq!(t.state("a").await, "absent, delayed 5ms, failures 1");
}

pub(super) async fn batch_may_mix_all_finishes(t: Trial) {
    let finishes = [
        (Finish::Done, Finished::Done),
        (Finish::Release, Finished::Requeued),
        (Finish::Retry, Finished::Delayed(millis(5))),
        (Finish::GiveUp, Finished::Dead),
        (Finish::RequeueAfter(secs(3)), Finished::Delayed(secs(3))),
        (Finish::RetryAfter(secs(4)), Finished::Delayed(secs(4))),
        (Finish::Succeed, Finished::Done),
    ];
    t.receipts(&adds_now(&numbered(finishes.len()))).await;
    let grants = t.lease(finishes.len()).await;
    let request =
        |(grant, (finish, _)): (_, &(Finish, _))| finish_request(grant, *finish);
    let mut requests: Vec<_> = grants.iter().zip(&finishes).map(request).collect();
    let unknown = Hold { key: key("unknown"), token: Token(1) };
    requests.insert(2, FinishRequest::new(unknown, Finish::Done));
    let mut expected: Vec<_> = finishes.iter().map(|(_, finished)| *finished).collect();
    expected.insert(2, Finished::LeaseLost);
    assert_eq!(t.finish_all(&requests).await, expected);
}

pub(super) async fn look_remove_and_forget_accept_repeated_keys(t: Trial) {
    t.add("a").await;
    let twice = keys(&["a", "a"]);
    let looks = t.store.look(&twice).all().await.expect("look succeeds");
    assert_eq!(looks[0], looks[1]);
    assert_eq!(t.store.remove(&twice).all().await.expect("remove succeeds"), [true, false]);
    t.store.forget(&twice).all().await.expect("forget succeeds");
}

pub(super) async fn batch_may_have_a_thousand_keys(t: Trial) {
    let names = numbered(1000);
    let limited = |key| add(key, When::RateLimited(Backoff::default()));
    t.receipts(&names.iter().map(limited).collect::<Vec<_>>()).await;
    assert_eq!(t.stats().await.failing, 1000);
    let looks = t.store.look(&names).all().await.expect("look succeeds");
    assert!(looks.iter().all(|look| look.delayed == Some(millis(5))));
    t.store.forget(&names).all().await.expect("forget succeeds");
    assert_eq!(t.stats().await.failing, 0);
    let removed = t.store.remove(&names).all().await.expect("remove succeeds");
    assert_eq!(removed, [true; 1000]);
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn reclaim_may_release_a_thousand_leases(t: Trial) {
    t.receipts(&adds_now(&numbered(1000))).await;
    let grants = t.lease(1000).await;
    let known = [hold(&grants[500])];
    let reclaimed = t.store.reclaim(&worker(), &known).await;
    assert_eq!(reclaimed.expect("reclaim succeeds"), 999);
    let stats = t.stats().await;
    assert_eq!((stats.ready, stats.processing), (999, 1));
}
