//! Adding a key does what the table of [`Store::add`](crate::Store::add) says.

use std::time::Duration;

use requeue::{Added, Finish};

use super::trial::{Trial, at_once, key, millis, secs, summary};
use crate::{Backoff, Finished, Look, When};

pub(super) async fn absent_key_becomes_ready(t: Trial) {
    assert_eq!(t.state("a").await, "absent");
    assert_eq!(t.add("a").await, Added::Ready);
    assert_eq!(t.state("a").await, "ready");
    assert_eq!(t.lease_one().await.key, key("a"));
}

pub(super) async fn ready_key_is_queued_once(t: Trial) {
    t.add("a").await;
    assert_eq!(t.add("a").await, Added::Duplicate);
    assert_eq!(t.stats().await.ready, 1);
    let grant = t.lease_one().await;
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
    assert!(t.lease(1).await.is_empty());
}

pub(super) async fn leased_key_becomes_dirty(t: Trial) {
    t.lease_new("a").await;
    assert_eq!(t.add("a").await, Added::Dirty);
    assert_eq!(t.state("a").await, "dirty, deliveries 1");
}

pub(super) async fn dirty_key_runs_once_more(t: Trial) {
    let grant = t.lease_new("a").await;
    t.add("a").await;
    assert_eq!(t.add("a").await, Added::Duplicate);
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Requeued);
    let again = t.lease_one().await;
    assert_eq!(t.finish(&again, Finish::Done).await, Finished::Done);
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.state("a").await, "absent");
}

pub(super) async fn dirty_key_is_not_leased_twice(t: Trial) {
    t.lease_new("a").await;
    t.add("a").await;
    assert!(t.lease(5).await.is_empty());
}

pub(super) async fn delayed_add_gets_the_same_answer_in_every_state(t: Trial) {
    for (name, state) in
        [("a", "absent"), ("b", "ready"), ("c", "processing"), ("d", "dirty")]
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
        let before = t.state(name).await;
        assert!(before.starts_with(state), "{before}");
        assert_eq!(t.add_after(name, secs(5)).await, Added::Delayed, "{state}");
        assert_eq!(t.add_after(name, secs(5)).await, Added::Duplicate, "{state}");
        assert_eq!(t.add_after(name, secs(6)).await, Added::Duplicate, "{state}");
        assert_eq!(t.add_after(name, secs(4)).await, Added::Delayed, "{state}");
        let after = t.look(name).await;
        assert_eq!(after.delayed, Some(secs(4)), "{state}");
        let look = Look { delayed: None, ..after };
        assert_eq!(summary(&look), before, "{state}");
        t.remove("b").await;
    }
}

pub(super) async fn zero_delay_means_now(t: Trial) {
    let receipt = t.add_when("a", When::After(Duration::ZERO)).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Ready, Duration::ZERO));
    assert_eq!(t.add_after("a", Duration::ZERO).await, Added::Duplicate);
    t.lease_one().await;
    assert_eq!(t.add_after("a", Duration::ZERO).await, Added::Dirty);
    let limited = t.add_when("b", When::RateLimited(at_once(None))).await;
    assert_eq!((limited.added, limited.delay), (Added::Ready, Duration::ZERO));
    assert_eq!(t.state("b").await, "ready, failures 1");
}

pub(super) async fn receipt_reports_the_delay(t: Trial) {
    assert_eq!(t.add_when("a", When::Now).await.delay, Duration::ZERO);
    assert_eq!(t.add_when("b", When::After(secs(7))).await.delay, secs(7));
    let limited = t.add_when("c", When::RateLimited(Backoff::default())).await;
    assert_eq!((limited.added, limited.delay), (Added::Delayed, millis(5)));
}

pub(super) async fn rate_limited_add_counts_a_failure(t: Trial) {
    for (failures, delay) in [(1, 5), (2, 10), (3, 20)] {
        let receipt = t.add_when("a", When::RateLimited(Backoff::default())).await;
        assert_eq!((receipt.added, receipt.delay), (Added::Delayed, millis(delay)));
        t.clock.advance(millis(delay));
        let grant = t.lease_one().await;
        assert_eq!(grant.failures, failures);
        t.finish(&grant, Finish::Done).await;
    }
}
