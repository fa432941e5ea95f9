//! The priority of a key (rule 11), whatever the order is.

use super::tools::{LEASE, REVIVE, Trial, add, key, millis, ranked, secs, worker};
use crate::{Grant, When, Which};
use requeue::{Added, Finish};

impl Trial {
    /// Adds a key of this priority, and leases it.
    async fn take_ranked(&self, name: &str, priority: i8) -> Grant {
        self.add_ranked(name, priority).await;
        let grant = self.lease_one().await;
        assert_eq!((&grant.key, grant.priority), (&key(name), priority));
        grant
    }

    /// The priority of the one key that is ready, which is then done.
    async fn comes_with(&self) -> i8 {
        let grant = self.lease_one().await;
        self.finish(&grant, Finish::Done).await;
        grant.priority
    }
}

pub(super) async fn a_grant_tells_the_priority_of_its_key(t: Trial) {
    for priority in [i8::MIN, -1, 1, i8::MAX] {
        assert_eq!(t.add_ranked("a", priority).await, Added::Ready);
        assert_eq!(t.comes_with().await, priority);
        assert_eq!(t.add("a").await, Added::Ready);
        assert_eq!(t.comes_with().await, 0, "nothing is left of {priority}");
    }
}

pub(super) async fn an_add_never_lowers_a_priority(t: Trial) {
    for (first, second, higher) in [(5, 0, 5), (-5, 0, 0), (-5, -6, -5), (1, 5, 5)] {
        t.add_ranked("a", first).await;
        assert_eq!(t.add_ranked("a", second).await, Added::Duplicate);
        assert_eq!(t.comes_with().await, higher, "of {first} and {second}");
    }
}

pub(super) async fn adds_of_one_batch_raise_a_key_together(t: Trial) {
    let batch = [1, 5, 3, -4].map(|priority| ranked("a", When::Now, priority));
    t.receipts(&batch).await;
    assert_eq!(t.comes_with().await, 5);
    t.take_ranked("a", 9).await;
    t.receipts(&batch).await;
    t.clock.advance(LEASE);
    assert_eq!(t.comes_with().await, 9);
}

pub(super) async fn a_key_whose_delay_is_over_has_the_priority_of_its_add(t: Trial) {
    t.receipts(&[ranked("a", When::After(secs(1)), -7)]).await;
    t.receipts(&[ranked("a", When::After(secs(9)), 3)]).await;
    t.clock.advance(secs(1));
    assert_eq!(t.comes_with().await, 3, "the later delay was no news, but raised it");
    t.receipts(&[ranked("a", When::After(secs(1)), 7)]).await;
    assert_eq!(t.add("a").await, Added::Ready);
    assert_eq!(t.comes_with().await, 7, "what is planned has one priority");
}

pub(super) async fn a_delay_raises_a_key_that_is_ready_or_dirty(t: Trial) {
    t.add("a").await;
    t.receipts(&[ranked("a", When::After(secs(1)), 4)]).await;
    let grant = t.lease_one().await;
    assert_eq!(grant.priority, 4);
    t.remove("a").await;
    t.add("a").await;
    t.receipts(&[ranked("a", When::After(secs(1)), 6)]).await;
    t.finish(&grant, Finish::Done).await;
    assert_eq!(t.comes_with().await, 6);
}

pub(super) async fn a_delay_keeps_the_priority_that_a_grant_takes_with_it(t: Trial) {
    t.receipts(&[ranked("a", When::After(secs(1)), 0)]).await;
    let grant = t.take_ranked("a", 4).await;
    t.finish(&grant, Finish::Done).await;
    t.clock.advance(secs(1));
    assert_eq!(t.comes_with().await, 4);
    t.add("a").await;
    assert_eq!(t.comes_with().await, 0);
}

pub(super) async fn a_dirty_key_has_the_priority_of_what_made_it_dirty(t: Trial) {
    for (first, second) in [(9, 2), (0, -3), (0, 3), (-9, 0)] {
        let grant = t.take_ranked("a", first).await;
        assert_eq!(t.add_ranked("a", second - 1).await, Added::Dirty);
        assert_eq!(t.add_ranked("a", second).await, Added::Duplicate);
        t.finish(&grant, Finish::Succeed).await;
        assert_eq!(t.comes_with().await, second);
    }
}

pub(super) async fn a_key_that_comes_again_keeps_its_priority(t: Trial) {
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
            let grant = t.take_ranked("a", priority).await;
            t.finish(&grant, finish).await;
            t.clock.advance(delay);
            assert_eq!(t.comes_with().await, priority);
            t.forget("a").await;
        }
        t.take_ranked("a", priority).await;
        t.clock.advance(LEASE);
        assert_eq!(t.lease_one().await.priority, priority, "its lease ran out");
        t.store.reclaim(&worker(), &[]).await.expect("leases are reclaimed");
        assert_eq!(t.comes_with().await, priority, "its lease was reclaimed");
    }
}

pub(super) async fn a_retried_key_that_is_dirty_has_the_higher_of_both_priorities(
    t: Trial,
) {
    for (first, second) in [(9, 2), (2, 9), (-2, -9), (0, -1)] {
        let grant = t.take_ranked("a", first).await;
        t.add_ranked("a", second).await;
        t.finish(&grant, Finish::Retry).await;
        assert_eq!(t.comes_with().await, first.max(second));
        t.clock.advance(millis(5));
        assert_eq!(t.comes_with().await, first.max(second), "after the delay too");
        t.forget("a").await;
    }
}

pub(super) async fn a_removed_key_has_no_priority(t: Trial) {
    t.add_ranked("a", 9).await;
    t.receipts(&[ranked("a", When::After(secs(1)), 9)]).await;
    t.remove("a").await;
    let grant = t.take_ranked("a", -2).await;
    t.add_ranked("a", 3).await;
    t.remove("a").await;
    t.finish(&grant, Finish::Release).await;
    assert_eq!(t.comes_with().await, -2, "that of the grant is not removed");
}

pub(super) async fn a_dead_key_has_no_priority(t: Trial) {
    let grant = t.take_ranked("a", 9).await;
    t.receipts(&[ranked("a", When::After(secs(1)), 9)]).await;
    t.finish(&grant, Finish::GiveUp).await;
    t.store.revive(&Which::All).await.expect("dead keys are revived");
    assert_eq!(t.comes_with().await, 0);
    for priority in [-4, 4] {
        let grant = t.take_ranked("a", 9).await;
        t.finish(&grant, Finish::GiveUp).await;
        t.add_ranked("a", priority).await;
        t.clock.advance(REVIVE);
        assert_eq!(t.comes_with().await, priority);
    }
}

pub(super) async fn a_key_of_any_priority_wakes(t: Trial) {
    for priority in [-1, 1] {
        assert!(t.lease(1).await.is_empty());
        t.receipts(&[ranked("a", When::Now, priority)]).await;
        t.store.wait(LEASE).await.expect("somebody is woken");
        assert_eq!(t.comes_with().await, priority);
        let grant = t.take_ranked("a", priority).await;
        t.receipts(&[add(&key("a"), When::Now)]).await;
        assert!(t.lease(1).await.is_empty());
        t.finish(&grant, Finish::Done).await;
        t.store.wait(LEASE).await.expect("somebody is woken");
        t.comes_with().await;
    }
}
