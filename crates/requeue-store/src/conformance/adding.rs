//! What adding a key answers and changes: the table of [`Store::add`](crate::Store::add).

use std::time::Duration;

use requeue::{Added, Finish};

use super::tools::{Trial, at_once, key, millis, secs, words};
use crate::{Backoff, Finished, Look, When};

pub(super) async fn an_absent_key_is_ready(t: Trial) {
    assert_eq!(t.shows("a").await, "absent");
    assert_eq!(t.add("a").await, Added::Ready);
    assert_eq!(t.shows("a").await, "ready");
    assert_eq!(t.lease_one().await.key, key("a"));
}

pub(super) async fn a_ready_key_is_there_once(t: Trial) {
    t.add("a").await;
    assert_eq!(t.add("a").await, Added::Duplicate);
    assert_eq!(t.stats().await.ready, 1);
    let grant = t.lease_one().await;
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
    assert!(t.lease(1).await.is_empty());
}

pub(super) async fn a_key_with_a_worker_becomes_dirty(t: Trial) {
    t.take("a").await;
    assert_eq!(t.add("a").await, Added::Dirty);
    assert_eq!(t.shows("a").await, "dirty, deliveries 1");
}

pub(super) async fn a_dirty_key_stays_dirty_and_runs_once_more(t: Trial) {
    let grant = t.take("a").await;
    t.add("a").await;
    assert_eq!(t.add("a").await, Added::Duplicate);
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Requeued);
    let again = t.lease_one().await;
    assert_eq!(t.finish(&again, Finish::Done).await, Finished::Done);
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.shows("a").await, "absent");
}

pub(super) async fn a_dirty_key_is_with_one_worker_at_a_time(t: Trial) {
    t.take("a").await;
    t.add("a").await;
    assert!(t.lease(5).await.is_empty());
}

pub(super) async fn a_delay_is_answered_alike_in_every_state(t: Trial) {
    for (name, state) in [("a", "absent"), ("b", "ready"), ("c", "processing"), ("d", "dirty")]
    {
        if state != "absent" {
            t.add(name).await;
        }
        if state == "processing" || state == "dirty" {
            t.lease_one().await;
        }
        if state == "dirty" {
            t.add(name).await;
        }
        let before = t.shows(name).await;
        assert!(before.starts_with(state), "{before}");
        assert_eq!(t.add_after(name, secs(5)).await, Added::Delayed, "{state}");
        assert_eq!(t.add_after(name, secs(5)).await, Added::Duplicate, "{state}");
        assert_eq!(t.add_after(name, secs(6)).await, Added::Duplicate, "{state}");
        assert_eq!(t.add_after(name, secs(4)).await, Added::Delayed, "{state}");
        let after = t.look(name).await;
        assert_eq!(after.delayed, Some(secs(4)), "{state}");
        let look = Look { delayed: None, ..after };
        assert_eq!(words(&look), before, "{state}");
        t.remove("b").await;
    }
}

pub(super) async fn no_delay_at_all_is_now(t: Trial) {
    let receipt = t.add_when("a", When::After(Duration::ZERO)).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Ready, Duration::ZERO));
    assert_eq!(t.add_after("a", Duration::ZERO).await, Added::Duplicate);
    t.lease_one().await;
    assert_eq!(t.add_after("a", Duration::ZERO).await, Added::Dirty);
    let limited = t.add_when("b", When::RateLimited(at_once(None))).await;
    assert_eq!((limited.added, limited.delay), (Added::Ready, Duration::ZERO));
    assert_eq!(t.shows("b").await, "ready, failures 1");
}

pub(super) async fn a_receipt_says_how_long_the_key_waits(t: Trial) {
    assert_eq!(t.add_when("a", When::Now).await.delay, Duration::ZERO);
    assert_eq!(t.add_when("b", When::After(secs(7))).await.delay, secs(7));
    let limited = t.add_when("c", When::RateLimited(Backoff::default())).await;
    assert_eq!((limited.added, limited.delay), (Added::Delayed, millis(5)));
}

pub(super) async fn a_rate_limited_add_counts_a_failure(t: Trial) {
    for (failures, delay) in [(1, 5), (2, 10), (3, 20)] {
        let receipt = t.add_when("a", When::RateLimited(Backoff::default())).await;
        assert_eq!((receipt.added, receipt.delay), (Added::Delayed, millis(delay)));
        t.clock.advance(millis(delay));
        let grant = t.lease_one().await;
        assert_eq!(grant.failures, failures);
        t.finish(&grant, Finish::Done).await;
    }
}
