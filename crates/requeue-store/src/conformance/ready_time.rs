//! A grant reports how long its key was ready (rule 13).

use std::collections::HashMap;
use std::time::Duration;

use requeue::{Added, Finish};

use super::trial::{
    LEASE, REVIVE, TICK, Trial, adds_now, key, millis, numbered, secs, with_priority,
    worker,
};
use crate::{Backoff, Grant, Key, When, Which};

const NONE: Duration = Duration::ZERO;

impl Trial {
    /// Leases the only ready key and finishes it. Returns how long it was ready.
    async fn waited(&self) -> Duration {
        let grant = self.lease_one().await;
        self.finish(&grant, Finish::Done).await;
        grant.waited
    }

    /// As [`waited`](Self::waited), after some time.
    async fn waited_after(&self, time: Duration) -> Duration {
        self.clock.advance(time);
        self.waited().await
    }
}

/// Returns the reported time of each key.
fn by_key(grants: Vec<Grant>) -> HashMap<Key, Duration> {
    grants.into_iter().map(|grant| (grant.key, grant.waited)).collect()
}

pub(super) async fn time_starts_with_the_add_that_made_the_key_ready(t: Trial) {
    for time in [NONE, TICK, millis(1), secs(7), secs(400 * 24 * 60 * 60)] {
        t.add("a").await;
        assert_eq!(t.waited_after(time).await, time);
    }
}

pub(super) async fn duplicate_add_does_not_restart_the_time(t: Trial) {
    t.add("a").await;
    t.clock.advance(secs(2));
    assert_eq!(t.add("a").await, Added::Duplicate);
    t.clock.advance(secs(1));
    t.add_after("a", secs(60)).await;
    assert_eq!(t.waited_after(secs(1)).await, secs(4));
}

pub(super) async fn raised_priority_does_not_restart_the_time(t: Trial) {
    for (first, second) in [(0, 5), (-5, 0), (-5, -3), (1, 2), (-1, 1)] {
        t.add_with_priority("a", first).await;
        t.clock.advance(secs(2));
        t.add_with_priority("a", second).await;
        let waited = t.waited_after(secs(1)).await;
        assert_eq!(waited, secs(3), "raised from {first} to {second} by an add");
        t.add_with_priority("a", first).await;
        t.clock.advance(secs(2));
        t.receipts(&[with_priority("a", When::After(secs(60)), second)]).await;
        let waited = t.waited_after(secs(1)).await;
        assert_eq!(waited, secs(3), "raised from {first} to {second} by a delay");
        t.remove("a").await;
    }
}

pub(super) async fn raised_key_among_many_keeps_its_own_time(t: Trial) {
    let names = numbered(40);
    t.add_with_priority("low", -5).await;
    t.clock.advance(secs(100));
    t.receipts(&adds_now(&names[..20])).await;
    assert_eq!(t.add("low").await, Added::Duplicate);
    t.receipts(&adds_now(&names[20..])).await;
    t.clock.advance(secs(1));
    let reported = by_key(t.lease(41).await);
    assert_eq!(reported[&key("low")], secs(101));
    assert!(names.iter().all(|name| reported[name] == secs(1)), "{reported:?}");
}

/// Adds keys in calls of `at_a_time` keys, one call a second, and leases all in one call.
async fn each_its_own_time(t: &Trial, at_a_time: usize, names: &[Key]) {
    let calls = names.len().div_ceil(at_a_time);
    for call in names.chunks(at_a_time) {
        t.receipts(&adds_now(call)).await;
        t.clock.advance(secs(1));
    }
    let grants = t.lease(names.len()).await;
    for grant in &grants {
        t.finish(grant, Finish::Done).await;
    }
    let reported = by_key(grants);
    for (index, name) in names.iter().enumerate() {
        let calls_since = (calls - index / at_a_time) as u64;
        let (reported, waited) = (reported[name], secs(calls_since));
        let close = if names.len() > 4 { reported / 10 } else { NONE };
        assert!(
            reported.abs_diff(waited) <= close,
            "{name}, added in calls of {at_a_time}, was ready for {waited:?}, not {reported:?}"
        );
    }
}

pub(super) async fn each_key_of_a_batch_has_its_own_time(t: Trial) {
    for at_a_time in [1, 2, 7, 50, 99, 100] {
        each_its_own_time(&t, at_a_time, &numbered(100)).await;
    }
    each_its_own_time(&t, 1, &numbered(3)).await;
}

pub(super) async fn keys_of_all_priorities_have_their_own_times(t: Trial) {
    for priority in -4..4_i8 {
        t.add_with_priority(&priority.to_string(), priority).await;
        t.clock.advance(secs(1));
    }
    let reported = by_key(t.lease(9).await);
    for (priority, time) in (-4..4_i8).zip((1..=8).rev()) {
        assert_eq!(reported[&key(&priority.to_string())], secs(time), "{priority}");
    }
}

pub(super) async fn keys_leased_one_by_one_have_their_own_times(t: Trial) {
    t.receipts(&adds_now(&numbered(4))).await;
    for time in 1..=4 {
        t.clock.advance(secs(1));
        let grants = t.lease(1).await;
        assert_eq!(grants[0].waited, secs(time));
    }
    t.clock.advance(LEASE);
    t.expire(None).await;
    for time in 1..=4 {
        t.clock.advance(secs(1));
        let grants = t.lease(1).await;
        assert_eq!((grants[0].deliveries, grants[0].waited), (2, secs(time)));
    }
}

pub(super) async fn time_of_a_delayed_key_starts_when_it_is_moved(t: Trial) {
    t.add_after("a", secs(5)).await;
    assert_eq!(t.waited_after(secs(60)).await, NONE, "moved by the lease call itself");
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(6));
    t.expire(None).await;
    assert_eq!(t.waited_after(secs(2)).await, secs(2), "moved earlier");
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(6));
    t.stats().await;
    assert_eq!(t.waited_after(secs(3)).await, secs(3), "moved by stats");
}

pub(super) async fn delay_that_ends_while_the_key_is_ready_does_not_restart_the_time(t: Trial) {
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(1));
    assert_eq!(t.add("a").await, Added::Ready);
    t.clock.advance(secs(6));
    t.expire(None).await;
    assert_eq!(t.waited_after(secs(1)).await, secs(7));
}

pub(super) async fn time_of_a_rate_limited_key_starts_when_it_is_moved(t: Trial) {
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    t.clock.advance(millis(5));
    t.expire(None).await;
    assert_eq!(t.waited_after(secs(2)).await, secs(2));
}

pub(super) async fn time_of_a_retried_key_starts_when_it_is_moved(t: Trial) {
    for (finish, delay) in [
        (Finish::Retry, millis(5)),
        (Finish::RetryAfter(secs(1)), secs(1)),
        (Finish::RequeueAfter(secs(1)), secs(1)),
    ] {
        let grant = t.lease_new("a").await;
        t.finish(&grant, finish).await;
        t.clock.advance(delay + secs(9));
        t.expire(None).await;
        assert_eq!(t.waited_after(secs(2)).await, secs(2), "{finish:?}");
    }
}

pub(super) async fn time_of_a_requeued_key_starts_at_the_end_of_its_lease(t: Trial) {
    for finish in [Finish::Release, Finish::RequeueAfter(NONE), Finish::RetryAfter(NONE)]
    {
        t.add("a").await;
        t.clock.advance(secs(3));
        let grant = t.lease_one().await;
        t.clock.advance(secs(4));
        t.finish(&grant, finish).await;
        assert_eq!(t.waited_after(secs(5)).await, secs(5), "{finish:?}");
    }
}

pub(super) async fn time_of_a_dirty_key_starts_at_the_end_of_its_lease(t: Trial) {
    for finish in [Finish::Done, Finish::Succeed, Finish::Retry, Finish::GiveUp] {
        let grant = t.lease_new("a").await;
        t.clock.advance(secs(1));
        assert_eq!(t.add("a").await, Added::Dirty);
        t.clock.advance(secs(2));
        t.finish(&grant, finish).await;
        assert_eq!(t.waited_after(millis(4)).await, millis(4), "{finish:?}");
        t.remove("a").await;
    }
}

pub(super) async fn time_of_an_expired_key_starts_when_it_is_moved(t: Trial) {
    for again in [false, true] {
        t.lease_new("a").await;
        if again {
            t.add("a").await;
        }
        t.clock.advance(LEASE + secs(9));
        assert_eq!(t.lease_one().await.waited, NONE, "moved by the lease call itself");
        t.clock.advance(LEASE + secs(9));
        t.expire(None).await;
        assert_eq!(t.waited_after(secs(2)).await, secs(2), "moved earlier");
    }
}

pub(super) async fn time_of_a_reclaimed_key_starts_at_the_reclaim(t: Trial) {
    t.lease_new("a").await;
    t.clock.advance(secs(3));
    t.store.reclaim(&worker(), &[]).await.expect("reclaim succeeds");
    assert_eq!(t.waited_after(secs(2)).await, secs(2));
}

pub(super) async fn time_of_a_revived_key_starts_at_the_revival(t: Trial) {
    t.make_dead("a").await;
    t.clock.advance(secs(3));
    t.store.revive(&Which::All).await.expect("revive succeeds");
    assert_eq!(t.waited_after(secs(2)).await, secs(2));
    t.make_dead("a").await;
    t.add("a").await;
    t.clock.advance(REVIVE + secs(1));
    assert_eq!(t.waited().await, NONE, "an add of a dead key delays it");
}

pub(super) async fn time_of_a_removed_key_starts_with_its_next_add(t: Trial) {
    t.receipts(&adds_now(&numbered(100))).await;
    for name in ["7", "8"] {
        t.clock.advance(secs(1));
        assert!(t.remove(name).await);
        t.add(name).await;
    }
    t.clock.advance(secs(1));
    let reported = by_key(t.lease(100).await);
    assert_eq!(
        [7, 8, 9].map(|name| reported[&key(&format!("{name}"))]),
        [2, 1, 3].map(secs)
    );
}

pub(super) async fn pausing_does_not_stop_the_time(t: Trial) {
    t.add("a").await;
    t.store.pause().await.expect("pause succeeds");
    t.clock.advance(secs(2));
    assert!(t.lease(1).await.is_empty());
    t.store.resume().await.expect("resume succeeds");
    assert_eq!(t.waited_after(secs(1)).await, secs(3));
}

pub(super) async fn redelivered_and_failed_keys_have_their_own_times(t: Trial) {
    t.lease_new("lost").await;
    let failed = t.lease_failed("failed").await;
    t.finish(&failed, Finish::Release).await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    t.add("fresh").await;
    t.clock.advance(secs(2));
    let reported = by_key(t.lease(3).await);
    assert_eq!(reported[&key("lost")], secs(2));
    assert_eq!(reported[&key("failed")], LEASE + secs(2));
    assert_eq!(reported[&key("fresh")], secs(2));
}

pub(super) async fn clock_stepping_back_makes_the_time_zero_never_negative(t: Trial) {
    for priority in [0, 3] {
        t.add_with_priority("a", priority).await;
        t.clock.set_back(secs(5));
        assert_eq!(t.waited().await, NONE);
        t.add_with_priority("a", priority).await;
        assert_eq!(t.waited_after(secs(6)).await, secs(6));
    }
}
