//! Dead keys: how a key dies, how it is listed, and how it is revived (rules 8 and 9).

use std::num::NonZeroU32;
use std::time::Duration;

use requeue::{Added, Finish};

use super::trial::{
    ERROR, LEASE, REVIVE, Trial, add, adds_now, finish_request, key, keys, numbered,
    request, secs, sorted, worker,
};
use crate::{Add, Backoff, Dead, Expired, LeaseRequest, Look, Owner, Stats, When, Which};

async fn dead(t: &Trial, limit: usize) -> Vec<Dead> {
    let mut dead = t.store.dead(limit).await.expect("dead succeeds");
    dead.sort_by(|a, b| a.key.cmp(&b.key));
    dead
}

async fn revive(t: &Trial, which: Which) -> u64 {
    t.store.revive(&which).await.expect("revive succeeds")
}

async fn drop_dead(t: &Trial, which: Which) -> u64 {
    t.store.drop_dead(&which).await.expect("drop_dead succeeds")
}

pub(super) async fn key_delivered_too_often_dies(t: Trial) {
    t.add("a").await;
    for delivery in 1..3 {
        assert_eq!(t.lease_one().await.deliveries, delivery);
        t.clock.advance(LEASE);
        let returned = Expired { due: 0, returned: 1, dead: 0 };
        assert_eq!(t.expire(Some(3)).await, returned);
    }
    t.lease_one().await;
    t.clock.advance(LEASE);
    assert_eq!(t.expire(Some(3)).await, Expired { due: 0, returned: 0, dead: 1 });
    assert_eq!(t.state("a").await, "dead");
    assert!(t.lease(1).await.is_empty());
}

pub(super) async fn key_can_die_at_its_first_expiry(t: Trial) {
    t.lease_new("a").await;
    t.clock.advance(LEASE);
    assert_eq!(t.expire(Some(1)).await.dead, 1);
}

pub(super) async fn key_above_a_lowered_limit_dies(t: Trial) {
    t.add("a").await;
    for _ in 0..4 {
        t.lease_one().await;
        t.clock.advance(LEASE);
    }
    assert_eq!(t.expire(Some(2)).await.dead, 1);
    assert_eq!(dead(&t, 9).await[0].deliveries, 4);
}

pub(super) async fn without_a_limit_no_number_of_expiries_is_fatal(t: Trial) {
    t.add("a").await;
    for delivery in 1..50 {
        assert_eq!(t.lease_one().await.deliveries, delivery);
        t.clock.advance(LEASE);
    }
}

pub(super) async fn lease_call_moves_keys_to_the_dead_too(t: Trial) {
    t.lease_new("a").await;
    t.clock.advance(LEASE);
    let limited = LeaseRequest { max_deliveries: NonZeroU32::new(1), ..request(1) };
    assert!(t.lease_all(&limited).await.is_empty());
    assert_eq!(t.state("a").await, "dead");
}

pub(super) async fn finish_resets_the_count_of_deliveries(t: Trial) {
    t.add("a").await;
    for _ in 0..5 {
        t.lease_one().await;
        t.clock.advance(LEASE);
        assert_eq!(t.expire(Some(2)).await.returned, 1);
        let second = t.lease_one().await;
        t.finish(&second, Finish::RequeueAfter(Duration::ZERO)).await;
    }
    assert_eq!(t.state("a").await, "ready");
}

pub(super) async fn key_dies_with_its_delay(t: Trial) {
    t.lease_new("a").await;
    t.add_after("a", secs(90)).await;
    t.clock.advance(LEASE);
    assert_eq!(t.expire(Some(1)).await.dead, 1);
    assert_eq!(t.look("a").await.delayed, None);
    t.clock.advance(secs(90));
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.stats().await, Stats { dead: 1, ..Stats::default() });
}

/// The key was buried together with its acknowledged add.
pub(super) async fn dirty_key_is_revived_at_its_last_expiry(t: Trial) {
    t.lease_failed("a").await;
    t.add("a").await;
    t.add_after("a", secs(90)).await;
    t.clock.advance(LEASE);
    assert_eq!(t.expire(Some(1)).await, Expired { returned: 1, ..Expired::default() });
    assert_eq!(t.state("a").await, "absent, delayed 1000s");
    assert_eq!(t.stats().await, Stats { delayed: 1, ..Stats::default() });
    t.clock.advance(secs(1000));
    let grant = t.lease_one().await;
    assert_eq!((grant.deliveries, grant.failures), (1, 0));
}

pub(super) async fn dirty_key_revived_by_a_lease_call_keeps_the_priority_of_its_add(
    t: Trial,
) {
    t.add_with_priority("a", 9).await;
    t.lease_one().await;
    t.add_with_priority("a", 5).await;
    t.clock.advance(LEASE);
    let once = LeaseRequest { max_deliveries: NonZeroU32::new(1), ..request(1) };
    assert!(t.lease_all(&once).await.is_empty());
    t.clock.advance(secs(1000));
    assert_eq!(t.lease_one().await.priority, 5);
}

pub(super) async fn given_up_key_is_listed_with_its_details(t: Trial) {
    let grant = t.lease_new("a").await;
    t.finish(&grant, Finish::Retry).await;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    t.finish(&grant, Finish::GiveUp).await;
    t.clock.advance(secs(7));
    let listed = dead(&t, 9).await;
    assert_eq!(listed.len(), 1);
    let Dead { key: name, reason, since, failures, owner, .. } = &listed[0];
    assert_eq!((name, reason.as_str()), (&key("a"), ERROR));
    assert_eq!((*since, *failures, owner), (secs(7), 1, &worker()));
}

pub(super) async fn key_delivered_too_often_is_listed_with_its_last_owner(t: Trial) {
    t.lease_failed("a").await;
    t.clock.advance(LEASE);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    assert_eq!(t.lease_all(&other).await.len(), 1);
    t.clock.advance(LEASE);
    t.expire(Some(2)).await;
    t.clock.advance(secs(3));
    let listed = dead(&t, 9).await;
    let Dead { reason, since, failures, deliveries, owner, .. } = &listed[0];
    assert!(!reason.is_empty(), "the reason is for people");
    assert_eq!((*since, *failures, *deliveries), (secs(3), 1, 2));
    assert_eq!(owner, &Owner::new("other"));
}

pub(super) async fn dead_respects_the_limit(t: Trial) {
    for name in ["a", "b", "c"] {
        t.make_dead(name).await;
    }
    assert_eq!(dead(&t, 0).await.len(), 0);
    assert_eq!(dead(&t, 2).await.len(), 2);
    let listed: Vec<_> = dead(&t, 3).await.into_iter().map(|dead| dead.key).collect();
    assert_eq!(listed, keys(&["a", "b", "c"]));
    assert_eq!(t.stats().await.dead, 3);
}

pub(super) async fn add_revives_a_dead_key_after_a_delay(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    let receipt = t.add_when("a", When::Now).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Delayed, REVIVE));
    assert_eq!(t.state("a").await, "absent, delayed 1000s");
    assert!(dead(&t, 9).await.is_empty());
    t.clock.advance(REVIVE);
    let again = t.lease_one().await;
    assert_eq!((again.deliveries, again.failures), (1, 0));
}

pub(super) async fn longer_delay_of_an_add_applies_to_a_dead_key(t: Trial) {
    t.make_dead("a").await;
    let receipt = t.add_when("a", When::After(REVIVE + secs(5))).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Delayed, REVIVE + secs(5)));
    t.make_dead("b").await;
    let receipt = t.add_when("b", When::After(secs(5))).await;
    assert_eq!((receipt.added, receipt.delay), (Added::Delayed, REVIVE));
    assert_eq!(t.state("b").await, "absent, delayed 1000s");
}

pub(super) async fn add_can_revive_a_dead_key_at_once(t: Trial) {
    t.make_dead("a").await;
    let adds = [Add { revive_after: Duration::ZERO, ..add(&key("a"), When::Now) }];
    assert_eq!(t.adds(&adds).await, [Added::Ready]);
    assert_eq!(t.state("a").await, "ready");
}

pub(super) async fn rate_limited_add_of_a_dead_key_counts_from_zero(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    let when = When::RateLimited(Backoff::default());
    let adds = [Add { revive_after: Duration::ZERO, ..add(&key("a"), when) }];
    let receipt = t.receipts(&adds).await[0];
    assert_eq!(
        (receipt.added, receipt.delay),
        (Added::Delayed, Duration::from_millis(5))
    );
    assert_eq!(t.state("a").await, "absent, delayed 5ms, failures 1");
}

pub(super) async fn revived_key_is_ready_without_failures(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    assert_eq!(revive(&t, Which::All).await, 1);
    assert_eq!(t.state("a").await, "ready");
    let grant = t.lease_one().await;
    assert_eq!((grant.deliveries, grant.failures), (1, 0));
    assert_eq!(revive(&t, Which::All).await, 0);
    assert!(dead(&t, 9).await.is_empty());
}

pub(super) async fn revive_affects_only_listed_dead_keys(t: Trial) {
    for name in ["a", "b", "c"] {
        t.make_dead(name).await;
    }
    t.lease_new("busy").await;
    let listed = Which::Keys(keys(&["a", "unknown", "busy", "b", "a"]));
    assert_eq!(revive(&t, listed).await, 2);
    assert_eq!(t.state("busy").await, "processing, deliveries 1");
    assert_eq!(t.state("unknown").await, "absent");
    assert_eq!(t.state("c").await, "dead");
    assert_eq!(sorted(&t.lease(9).await), keys(&["a", "b"]));
}

pub(super) async fn dropped_key_is_gone(t: Trial) {
    for name in ["a", "b", "c"] {
        t.make_dead(name).await;
    }
    t.add("d").await;
    assert_eq!(drop_dead(&t, Which::Keys(keys(&["a", "d", "unknown"]))).await, 1);
    assert_eq!(t.look("a").await, Look::default());
    assert_eq!(t.state("d").await, "ready");
    assert_eq!(drop_dead(&t, Which::All).await, 2);
    assert_eq!(t.stats().await.dead, 0);
    assert_eq!(t.add("a").await, Added::Ready, "nothing is left of it");
}

pub(super) async fn hundreds_of_dead_keys_are_revived_or_dropped_in_one_call(t: Trial) {
    let names = numbered(700);
    for round in [Which::All, Which::Keys(names.clone())] {
        t.receipts(&adds_now(&names)).await;
        let grants = t.lease(700).await;
        let give_up = |grant| finish_request(grant, Finish::GiveUp);
        t.finish_all(&grants.iter().map(give_up).collect::<Vec<_>>()).await;
        assert_eq!(revive(&t, round.clone()).await, 700);
        let grants = t.lease(700).await;
        assert_eq!(grants.len(), 700);
        t.finish_all(&grants.iter().map(give_up).collect::<Vec<_>>()).await;
        assert_eq!(drop_dead(&t, round).await, 700);
    }
}

pub(super) async fn forget_and_remove_ignore_dead_keys(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.finish(&grant, Finish::GiveUp).await;
    t.forget("a").await;
    assert!(!t.remove("a").await);
    assert_eq!(t.state("a").await, "dead, failures 1");
    assert_eq!(dead(&t, 9).await[0].failures, 1);
}
