//! Delays are never early, the earliest wins, and they are independent of the state
//! (rules 2, 3 and 6).

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::{Added, Finish};

use super::trial::{TICK, Trial, add, just_before, key, millis, numbered, request, secs};
use crate::{Finished, Key, When, micros_of};

pub(super) async fn delayed_key_is_never_a_microsecond_early(t: Trial) {
    t.add_after("a", secs(5)).await;
    t.clock.advance(just_before(secs(5)));
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.state("a").await, "absent, delayed 1µs");
    t.clock.advance(TICK);
    assert_eq!(t.lease(1).await.len(), 1);
    assert_eq!(t.state("a").await, "processing, deliveries 1");
}

pub(super) async fn delay_is_rounded_up_to_a_microsecond(t: Trial) {
    t.add_after("a", Duration::from_nanos(1)).await;
    assert!(t.lease(1).await.is_empty());
    t.add_after("b", Duration::from_nanos(1001)).await;
    t.clock.advance(TICK);
    assert_eq!(t.lease_one().await.key, key("a"));
    t.clock.advance(TICK);
    assert_eq!(t.lease_one().await.key, key("b"));
}

pub(super) async fn earlier_of_two_delays_wins(t: Trial) {
    t.add_after("a", secs(9)).await;
    assert_eq!(t.add_after("a", secs(5)).await, Added::Delayed);
    assert_eq!(t.add_after("a", secs(7)).await, Added::Duplicate);
    assert_eq!(t.state("a").await, "absent, delayed 5s");
    t.clock.advance(secs(5));
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::Done).await;
    t.clock.advance(secs(60));
    assert!(t.lease(1).await.is_empty(), "one delay, one run");
}

pub(super) async fn delay_starts_at_the_time_of_its_add(t: Trial) {
    t.add_after("a", secs(9)).await;
    t.clock.advance(secs(5));
    assert_eq!(t.add_after("a", secs(4)).await, Added::Duplicate, "the same time");
    assert_eq!(t.add_after("a", secs(3)).await, Added::Delayed);
    assert_eq!(t.state("a").await, "absent, delayed 3s");
}

pub(super) async fn add_makes_a_delayed_key_ready_and_keeps_the_delay(t: Trial) {
    t.add_after("a", secs(5)).await;
    assert_eq!(t.add("a").await, Added::Ready);
    assert_eq!(t.state("a").await, "ready, delayed 5s");
    let grant = t.lease_one().await;
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
    assert_eq!(t.state("a").await, "absent, delayed 5s");
    t.clock.advance(secs(5));
    assert_eq!(t.lease(1).await.len(), 1);
}

pub(super) async fn delay_that_ends_while_the_key_is_ready_changes_nothing(t: Trial) {
    t.add("a").await;
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(5));
    assert_eq!(t.state("a").await, "ready");
    assert_eq!(t.stats().await.ready, 1);
}

pub(super) async fn delay_that_ends_during_a_lease_makes_the_key_dirty(t: Trial) {
    let grant = t.lease_new("a").await;
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(5));
    assert_eq!(t.state("a").await, "dirty, deliveries 1");
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Requeued);
    assert_eq!(t.lease(2).await.len(), 1);
}

pub(super) async fn longest_possible_delay_is_accepted(t: Trial) {
    assert_eq!(t.add_after("a", Duration::MAX).await, Added::Delayed);
    let longest = Duration::from_micros(micros_of(Duration::MAX));
    assert_eq!(t.look("a").await.delayed, Some(longest));
    t.clock.advance(secs(3600 * 24 * 365));
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.add_after("a", secs(1)).await, Added::Delayed);
    t.clock.advance(secs(1));
    assert_eq!(t.lease(1).await.len(), 1);
}

pub(super) async fn expire_counts_due_delays(t: Trial) {
    t.add_after("a", secs(1)).await;
    t.add_after("b", secs(2)).await;
    t.add_after("c", secs(3)).await;
    t.clock.advance(secs(2));
    let expired = t.expire(None).await;
    assert_eq!((expired.due, expired.returned, expired.dead), (2, 0, 0));
    let stats = t.stats().await;
    assert_eq!((stats.ready, stats.delayed), (2, 1));
}

pub(super) async fn thousand_keys_due_at_once_are_all_delivered(t: Trial) {
    let keys = numbered(1000);
    let adds: Vec<_> = keys.iter().map(|key| add(key, When::After(millis(1)))).collect();
    t.receipts(&adds).await;
    t.clock.advance(secs(1));
    let mut seen: BTreeSet<Key> = BTreeSet::new();
    for _ in 0..100 {
        let leased = t.lease_call(&request(1000)).await;
        for grant in leased.grants {
            assert!(seen.insert(grant.key), "no key is leased twice");
        }
        if seen.len() == keys.len() {
            return;
        }
        assert_eq!(leased.more_in, Some(Duration::ZERO), "more keys are due");
    }
    panic!("after 100 calls {} of 1000 keys were leased", seen.len());
}

pub(super) async fn clock_stepping_back_makes_delays_late_never_early(t: Trial) {
    t.add_after("a", secs(5)).await;
    t.clock.set_back(secs(3));
    assert_eq!(t.state("a").await, "absent, delayed 8s");
    t.clock.advance(just_before(secs(8)));
    assert!(t.lease(1).await.is_empty());
    t.clock.advance(TICK);
    assert_eq!(t.lease(1).await.len(), 1);
}
