//! How long keys were ready before they were handed out (rule 13).

use std::collections::HashMap;
use std::time::Duration;

use requeue::{Added, Finish};

use super::tools::{LEASE, REVIVE, TICK, Trial, all_now, key, many, millis, ranked, secs, worker};
use crate::{Backoff, Grant, Key, When, Which};

const NONE: Duration = Duration::ZERO;

impl Trial {
    /// How long the one key that is ready has been so; it is then done.
    async fn waited(&self) -> Duration {
        let grant = self.lease_one().await;
        self.finish(&grant, Finish::Done).await;
        grant.waited
    }

    /// The same once more time has passed.
    async fn waited_after(&self, time: Duration) -> Duration {
        self.clock.advance(time);
        self.waited().await
    }
}

/// What was told of each key.
fn by_key(grants: Vec<Grant>) -> HashMap<Key, Duration> {
    grants.into_iter().map(|grant| (grant.key, grant.waited)).collect()
}

pub(super) async fn a_key_waits_from_the_add_that_made_it_ready(t: Trial) {
    for time in [NONE, TICK, millis(1), secs(7), secs(400 * 24 * 60 * 60)] {
        t.add("a").await;
        assert_eq!(t.waited_after(time).await, time);
    }
}

pub(super) async fn an_add_of_a_ready_key_does_not_start_it_again(t: Trial) {
    t.add("a").await;
    t.clock.advance(secs(2));
    assert_eq!(t.add("a").await, Added::Duplicate);
    t.clock.advance(secs(1));
    t.add_after("a", secs(60)).await;
    assert_eq!(t.waited_after(secs(1)).await, secs(4));
}

pub(super) async fn a_key_that_grows_in_priority_has_waited_all_the_time(t: Trial) {
    for (first, second) in [(0, 5), (-5, 0), (-5, -3), (1, 2), (-1, 1)] {
        t.add_ranked("a", first).await;
        t.clock.advance(secs(2));
        t.add_ranked("a", second).await;
        let waited = t.waited_after(secs(1)).await;
        assert_eq!(waited, secs(3), "raised from {first} to {second} by an add");
        t.add_ranked("a", first).await;
        t.clock.advance(secs(2));
        t.receipts(&[ranked("a", When::After(secs(60)), second)]).await;
        let waited = t.waited_after(secs(1)).await;
        assert_eq!(waited, secs(3), "raised from {first} to {second} by a delay");
        t.remove("a").await;
    }
}

pub(super) async fn a_key_that_was_raised_among_many_has_waited_all_the_time(t: Trial) {
    let names = many(40);
    t.add_ranked("low", -5).await;
    t.clock.advance(secs(100));
    t.receipts(&all_now(&names[..20])).await;
    assert_eq!(t.add("low").await, Added::Duplicate);
    t.receipts(&all_now(&names[20..])).await;
    t.clock.advance(secs(1));
    let told = by_key(t.lease(41).await);
    assert_eq!(told[&key("low")], secs(101));
    assert!(names.iter().all(|name| told[name] == secs(1)), "{told:?}");
}

/// Adds keys in calls of so many, one a second, and tells of what is leased in one.
async fn each_its_own_time(t: &Trial, at_a_time: usize, names: &[Key]) {
    let calls = names.len().div_ceil(at_a_time);
    for call in names.chunks(at_a_time) {
        t.receipts(&all_now(call)).await;
        t.clock.advance(secs(1));
    }
    let grants = t.lease(names.len()).await;
    for grant in &grants {
        t.finish(grant, Finish::Done).await;
    }
    let told = by_key(grants);
    for (place, name) in names.iter().enumerate() {
        let calls_since = (calls - place / at_a_time) as u64;
        let (told, waited) = (told[name], secs(calls_since));
        let close = if names.len() > 4 { told / 10 } else { NONE };
        assert!(
            told.abs_diff(waited) <= close,
            "{name}, of calls of {at_a_time}, waited {waited:?} and not {told:?}"
        );
    }
}

pub(super) async fn keys_of_one_call_have_each_waited_their_own_time(t: Trial) {
    for at_a_time in [1, 2, 7, 50, 99, 100] {
        each_its_own_time(&t, at_a_time, &many(100)).await;
    }
    each_its_own_time(&t, 1, &many(3)).await;
}

pub(super) async fn keys_of_all_priorities_have_each_waited_their_own_time(t: Trial) {
    for priority in -4..4_i8 {
        t.add_ranked(&priority.to_string(), priority).await;
        t.clock.advance(secs(1));
    }
    let told = by_key(t.lease(9).await);
    for (priority, time) in (-4..4_i8).zip((1..=8).rev()) {
        assert_eq!(told[&key(&priority.to_string())], secs(time), "{priority}");
    }
}

pub(super) async fn keys_that_are_asked_for_one_by_one_have_waited_too(t: Trial) {
    t.receipts(&all_now(&many(4))).await;
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

pub(super) async fn a_delayed_key_waits_from_when_it_was_moved(t: Trial) {
    t.add_after("a", secs(5)).await;
    assert_eq!(t.waited_after(secs(60)).await, NONE, "moved by the lease itself");
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(6));
    t.expire(None).await;
    assert_eq!(t.waited_after(secs(2)).await, secs(2), "moved before");
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(6));
    t.stats().await;
    assert_eq!(t.waited_after(secs(3)).await, secs(3), "moved to be counted");
}

pub(super) async fn a_delay_that_is_over_while_the_key_is_ready_does_not_start_it_again(
    t: Trial,
) {
    t.add_after("a", secs(5)).await;
    t.clock.advance(secs(1));
    assert_eq!(t.add("a").await, Added::Ready);
    t.clock.advance(secs(6));
    t.expire(None).await;
    assert_eq!(t.waited_after(secs(1)).await, secs(7));
}

pub(super) async fn a_rate_limited_key_waits_from_when_it_was_moved(t: Trial) {
    t.add_when("a", When::RateLimited(Backoff::default())).await;
    t.clock.advance(millis(5));
    t.expire(None).await;
    assert_eq!(t.waited_after(secs(2)).await, secs(2));
}

pub(super) async fn a_retried_key_waits_from_when_it_was_moved(t: Trial) {
    for (finish, delay) in
        [
            (Finish::Retry, millis(5)),
            (Finish::RetryAfter(secs(1)), secs(1)),
            (Finish::RequeueAfter(secs(1)), secs(1)),
        ]
    {
        let grant = t.take("a").await;
        t.finish(&grant, finish.clone()).await;
        t.clock.advance(delay + secs(9));
        t.expire(None).await;
        assert_eq!(t.waited_after(secs(2)).await, secs(2), "{finish:?}");
    }
}

pub(super) async fn a_key_that_comes_again_at_once_waits_from_the_end_of_its_lease(
    t: Trial,
) {
    for finish in [Finish::Release, Finish::RequeueAfter(NONE), Finish::RetryAfter(NONE)] {
        t.add("a").await;
        t.clock.advance(secs(3));
        let grant = t.lease_one().await;
        t.clock.advance(secs(4));
        t.finish(&grant, finish.clone()).await;
        assert_eq!(t.waited_after(secs(5)).await, secs(5), "{finish:?}");
    }
}

pub(super) async fn a_dirty_key_waits_from_the_end_of_the_lease(t: Trial) {
    for finish in [Finish::Done, Finish::Succeed, Finish::Retry, Finish::GiveUp] {
        let grant = t.take("a").await;
        t.clock.advance(secs(1));
        assert_eq!(t.add("a").await, Added::Dirty);
        t.clock.advance(secs(2));
        t.finish(&grant, finish.clone()).await;
        assert_eq!(t.waited_after(millis(4)).await, millis(4), "{finish:?}");
        t.remove("a").await;
    }
}

pub(super) async fn a_key_whose_lease_ran_out_waits_from_when_it_was_moved(t: Trial) {
    for again in [false, true] {
        t.take("a").await;
        if again {
            t.add("a").await;
        }
        t.clock.advance(LEASE + secs(9));
        assert_eq!(t.lease_one().await.waited, NONE, "moved by the lease itself");
        t.clock.advance(LEASE + secs(9));
        t.expire(None).await;
        assert_eq!(t.waited_after(secs(2)).await, secs(2), "moved before");
    }
}

pub(super) async fn a_reclaimed_key_waits_from_then(t: Trial) {
    t.take("a").await;
    t.clock.advance(secs(3));
    t.store.reclaim(&worker(), &[]).await.expect("leases are reclaimed");
    assert_eq!(t.waited_after(secs(2)).await, secs(2));
}

pub(super) async fn a_revived_key_waits_from_its_revival(t: Trial) {
    t.dead("a").await;
    t.clock.advance(secs(3));
    t.store.revive(&Which::All).await.expect("dead keys are revived");
    assert_eq!(t.waited_after(secs(2)).await, secs(2));
    t.dead("a").await;
    t.add("a").await;
    t.clock.advance(REVIVE + secs(1));
    assert_eq!(t.waited().await, NONE, "an add of a dead key delays it");
}

pub(super) async fn a_removed_key_that_is_added_again_waits_from_then(t: Trial) {
    t.receipts(&all_now(&many(100))).await;
    for name in ["7", "8"] {
        t.clock.advance(secs(1));
        assert!(t.remove(name).await);
        t.add(name).await;
    }
    t.clock.advance(secs(1));
    let told = by_key(t.lease(100).await);
    assert_eq!([7, 8, 9].map(|name| told[&key(&format!("{name}"))]), [2, 1, 3].map(secs));
}

pub(super) async fn a_key_of_a_paused_queue_waits_on(t: Trial) {
    t.add("a").await;
    t.store.pause().await.expect("the queue is paused");
    t.clock.advance(secs(2));
    assert!(t.lease(1).await.is_empty());
    t.store.resume().await.expect("the queue is resumed");
    assert_eq!(t.waited_after(secs(1)).await, secs(3));
}

pub(super) async fn a_key_that_was_granted_or_failed_before_has_waited_too(t: Trial) {
    t.take("lost").await;
    let failed = t.take_failed("failed").await;
    t.finish(&failed, Finish::Release).await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    t.add("fresh").await;
    t.clock.advance(secs(2));
    let told = by_key(t.lease(3).await);
    assert_eq!(told[&key("lost")], secs(2));
    assert_eq!(told[&key("failed")], LEASE + secs(2));
    assert_eq!(told[&key("fresh")], secs(2));
}

pub(super) async fn a_clock_that_steps_back_takes_no_time_away(t: Trial) {
    for priority in [0, 3] {
        t.add_ranked("a", priority).await;
        t.clock.set_back(secs(5));
        assert_eq!(t.waited().await, NONE);
        t.add_ranked("a", priority).await;
        assert_eq!(t.waited_after(secs(6)).await, secs(6));
    }
}
