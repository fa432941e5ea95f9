//! Every delivery has the right priority (rule 11), in whatever order a store delivers.

use super::trial::{LEASE, REVIVE, Trial, add, key, millis, secs, with_priority, worker};
use crate::{Grant, When, Which};
use requeue::{Added, Finish};

impl Trial {
    /// Adds a key with this priority and leases it.
    async fn lease_with_priority(&self, name: &str, priority: i8) -> Grant {
        self.add_with_priority(name, priority).await;
        let grant = self.lease_one().await;
        assert_eq!((&grant.key, grant.priority), (&key(name), priority));
        grant
    }

    /// Leases the only ready key and finishes it. Returns its priority.
    async fn next_priority(&self) -> i8 {
        let grant = self.lease_one().await;
        self.finish(&grant, Finish::Done).await;
        grant.priority
    }
}

pub(super) async fn grant_reports_the_priority(t: Trial) {
    for priority in [i8::MIN, -1, 1, i8::MAX] {
        assert_eq!(t.add_with_priority("a", priority).await, Added::Ready);
        assert_eq!(t.next_priority().await, priority);
        assert_eq!(t.add("a").await, Added::Ready);
        assert_eq!(t.next_priority().await, 0, "{priority} is forgotten");
    }
}

pub(super) async fn add_never_lowers_a_priority(t: Trial) {
    for (first, second, higher) in [(5, 0, 5), (-5, 0, 0), (-5, -6, -5), (1, 5, 5)] {
        t.add_with_priority("a", first).await;
        assert_eq!(t.add_with_priority("a", second).await, Added::Duplicate);
        assert_eq!(t.next_priority().await, higher, "of {first} and {second}");
    }
}

pub(super) async fn batch_of_adds_keeps_the_highest_priority(t: Trial) {
    let batch = [1, 5, 3, -4].map(|priority| with_priority("a", When::Now, priority));
    t.receipts(&batch).await;
    assert_eq!(t.next_priority().await, 5);
    t.lease_with_priority("a", 9).await;
    t.receipts(&batch).await;
    t.clock.advance(LEASE);
    assert_eq!(t.next_priority().await, 9);
}

pub(super) async fn due_key_has_the_highest_priority_of_its_adds(t: Trial) {
    t.receipts(&[with_priority("a", When::After(secs(1)), -7)]).await;
    t.receipts(&[with_priority("a", When::After(secs(9)), 3)]).await;
    t.clock.advance(secs(1));
    assert_eq!(t.next_priority().await, 3, "the later delay raised the priority");
    t.receipts(&[with_priority("a", When::After(secs(1)), 7)]).await;
    assert_eq!(t.add("a").await, Added::Ready);
    assert_eq!(t.next_priority().await, 7, "a pending key has one priority");
}

pub(super) async fn delayed_add_raises_a_ready_or_dirty_key(t: Trial) {
    t.add("a").await;
    t.receipts(&[with_priority("a", When::After(secs(1)), 4)]).await;
    let grant = t.lease_one().await;
    assert_eq!(grant.priority, 4);
    t.remove("a").await;
    t.add("a").await;
    t.receipts(&[with_priority("a", When::After(secs(1)), 6)]).await;
    t.finish(&grant, Finish::Done).await;
    assert_eq!(t.next_priority().await, 6);
}

pub(super) async fn delay_keeps_the_priority_of_the_grant(t: Trial) {
    t.receipts(&[with_priority("a", When::After(secs(1)), 0)]).await;
    let grant = t.lease_with_priority("a", 4).await;
    t.finish(&grant, Finish::Done).await;
    t.clock.advance(secs(1));
    assert_eq!(t.next_priority().await, 4);
    t.add("a").await;
    assert_eq!(t.next_priority().await, 0);
}

pub(super) async fn dirty_key_has_the_priority_of_its_new_adds(t: Trial) {
    for (first, second) in [(9, 2), (0, -3), (0, 3), (-9, 0)] {
        let grant = t.lease_with_priority("a", first).await;
        assert_eq!(t.add_with_priority("a", second - 1).await, Added::Dirty);
        assert_eq!(t.add_with_priority("a", second).await, Added::Duplicate);
        t.finish(&grant, Finish::Succeed).await;
        assert_eq!(t.next_priority().await, second);
    }
}

pub(super) async fn requeued_key_keeps_its_priority(t: Trial) {
    for priority in [9, -9] {
        let finishes = [
            (Finish::Retry, millis(5)),
            (Finish::RequeueAfter(secs(1)), secs(1)),
            (Finish::RetryAfter(secs(1)), secs(1)),
            (Finish::RetryAfter(secs(0)), secs(0)),
            (Finish::RequeueAfter(secs(0)), secs(0)),
            (Finish::Release, secs(0)),
        ];
        for (finish, delay) in finishes {
            let grant = t.lease_with_priority("a", priority).await;
            t.finish(&grant, finish).await;
            t.clock.advance(delay);
            assert_eq!(t.next_priority().await, priority);
            t.forget("a").await;
        }
        t.lease_with_priority("a", priority).await;
        t.clock.advance(LEASE);
        assert_eq!(t.lease_one().await.priority, priority, "its lease expired");
        t.store.reclaim(&worker(), &[]).await.expect("reclaim succeeds");
        assert_eq!(t.next_priority().await, priority, "its lease was reclaimed");
    }
}

pub(super) async fn retried_dirty_key_has_the_higher_priority(t: Trial) {
    for (first, second) in [(9, 2), (2, 9), (-2, -9), (0, -1)] {
        let grant = t.lease_with_priority("a", first).await;
        t.add_with_priority("a", second).await;
        t.finish(&grant, Finish::Retry).await;
        assert_eq!(t.next_priority().await, first.max(second));
        t.clock.advance(millis(5));
        assert_eq!(t.next_priority().await, first.max(second), "after the delay too");
        t.forget("a").await;
    }
}

pub(super) async fn removed_key_loses_its_priority(t: Trial) {
    t.add_with_priority("a", 9).await;
    t.receipts(&[with_priority("a", When::After(secs(1)), 9)]).await;
    t.remove("a").await;
    let grant = t.lease_with_priority("a", -2).await;
    t.add_with_priority("a", 3).await;
    t.remove("a").await;
    t.finish(&grant, Finish::Release).await;
    assert_eq!(t.next_priority().await, -2, "the priority of the lease is kept");
}

pub(super) async fn dead_key_loses_its_priority(t: Trial) {
    let grant = t.lease_with_priority("a", 9).await;
    t.receipts(&[with_priority("a", When::After(secs(1)), 9)]).await;
    t.finish(&grant, Finish::GiveUp).await;
    t.store.revive(&Which::All).await.expect("revive succeeds");
    assert_eq!(t.next_priority().await, 0);
    for priority in [-4, 4] {
        let grant = t.lease_with_priority("a", 9).await;
        t.finish(&grant, Finish::GiveUp).await;
        t.add_with_priority("a", priority).await;
        t.clock.advance(REVIVE);
        assert_eq!(t.next_priority().await, priority);
    }
}

pub(super) async fn key_of_any_priority_wakes_a_waiter(t: Trial) {
    for priority in [-1, 1] {
        assert!(t.lease(1).await.is_empty());
        t.receipts(&[with_priority("a", When::Now, priority)]).await;
        t.store.wait(LEASE).await.expect("wait succeeds");
        assert_eq!(t.next_priority().await, priority);
        let grant = t.lease_with_priority("a", priority).await;
        t.receipts(&[add(&key("a"), When::Now)]).await;
        assert!(t.lease(1).await.is_empty());
        t.finish(&grant, Finish::Done).await;
        t.store.wait(LEASE).await.expect("wait succeeds");
        t.next_priority().await;
    }
}
