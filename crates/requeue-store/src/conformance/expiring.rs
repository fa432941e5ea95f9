//! Leases expire, are extended and reclaimed (rules 3 and 8).

use requeue::Finish;

use super::trial::{
    LEASE, TICK, Trial, adds_now, hold, just_before, key, keys, numbered, request, secs,
    sorted, worker,
};
use crate::{RepliesExt, Expired, Finished, Hold, LeaseRequest, Owner, Token};

const NONE: Expired = Expired { due: 0, returned: 0, dead: 0 };

pub(super) async fn lease_never_expires_a_microsecond_early(t: Trial) {
    t.lease_new("a").await;
    t.clock.advance(just_before(LEASE));
    assert_eq!(t.expire(None).await, NONE);
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.state("a").await, "processing, deliveries 1");
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NONE });
    assert_eq!(t.state("a").await, "ready, deliveries 1");
}

pub(super) async fn next_lease_call_delivers_a_key_with_an_expired_lease(t: Trial) {
    let first = t.lease_new("a").await;
    t.clock.advance(LEASE);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    let second = t.lease_all(&other).await.remove(0);
    assert_eq!((&second.key, second.deliveries), (&first.key, 2));
    assert!(second.token > first.token);
    assert_eq!(t.finish(&first, Finish::Done).await, Finished::LeaseLost);
    assert_eq!(t.finish(&second, Finish::Done).await, Finished::Done);
}

pub(super) async fn expired_lease_can_be_finished_until_it_is_moved(t: Trial) {
    let grant = t.lease_new("a").await;
    t.clock.advance(LEASE + secs(60));
    assert_eq!(t.state("a").await, "processing, deliveries 1");
    assert_eq!(t.stats().await.processing, 1);
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
    assert_eq!(t.expire(None).await, NONE);
}

pub(super) async fn expired_lease_can_be_extended_until_it_is_moved(t: Trial) {
    let grant = t.lease_new("a").await;
    t.clock.advance(LEASE + secs(60));
    assert!(t.extend(&grant, LEASE).await);
    assert_eq!(t.expire(None).await, NONE);
    t.clock.advance(LEASE);
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NONE });
}

pub(super) async fn dirty_key_with_an_expired_lease_runs_once(t: Trial) {
    t.lease_new("a").await;
    t.add("a").await;
    t.clock.advance(LEASE);
    let again = t.lease_one().await;
    assert_eq!(t.state("a").await, "processing, deliveries 2");
    assert_eq!(t.finish(&again, Finish::Done).await, Finished::Done);
    assert!(t.lease(1).await.is_empty());
}

pub(super) async fn expired_key_keeps_its_delay_and_failures(t: Trial) {
    t.lease_failed("a").await;
    t.add_after("a", secs(90)).await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    assert_eq!(t.state("a").await, "ready, delayed 60s, failures 1, deliveries 1");
}

pub(super) async fn extended_lease_starts_again(t: Trial) {
    let grant = t.lease_new("a").await;
    t.clock.advance(secs(20));
    assert!(t.extend(&grant, LEASE).await);
    t.clock.advance(just_before(LEASE));
    assert_eq!(t.expire(None).await, NONE);
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NONE });
}

pub(super) async fn extension_can_shorten_a_lease(t: Trial) {
    let grant = t.lease_new("a").await;
    assert!(t.extend(&grant, secs(2)).await);
    t.clock.advance(secs(2));
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NONE });
}

pub(super) async fn extension_changes_nothing_else(t: Trial) {
    let grant = t.lease_failed("a").await;
    t.add("a").await;
    t.add_after("a", secs(90)).await;
    let before = t.look("a").await;
    assert!(t.extend(&grant, LEASE).await);
    assert_eq!(t.look("a").await, before);
}

pub(super) async fn extend_answers_for_each_lease(t: Trial) {
    let lost = t.lease_new("lost").await;
    t.clock.advance(LEASE);
    t.lease_one().await;
    let held = t.lease_new("held").await;
    let unknown = Hold { key: key("unknown"), token: Token(1) };
    let holds = [hold(&held), hold(&lost), unknown, hold(&held)];
    let held_leases = t.store.extend(&worker(), &holds, LEASE).all().await;
    assert_eq!(held_leases.expect("extend succeeds"), [true, false, false, true]);
    let none = t.store.extend(&worker(), &[], LEASE).all().await;
    assert!(none.expect("extend succeeds").is_empty());
    assert_eq!(t.state("unknown").await, "absent");
}

pub(super) async fn thousand_leases_expiring_at_once_all_return(t: Trial) {
    let mut names = numbered(1000);
    t.receipts(&adds_now(&names)).await;
    assert_eq!(t.lease(1000).await.len(), 1000);
    t.clock.advance(LEASE);
    let grants = t.lease(1000).await;
    names.sort();
    assert_eq!(sorted(&grants), names);
    assert!(grants.iter().all(|grant| grant.deliveries == 2));
}

pub(super) async fn reclaim_releases_unlisted_leases_of_the_owner(t: Trial) {
    t.receipts(&adds_now(&keys(&["a", "b", "c"]))).await;
    let grants = t.lease(3).await;
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    t.add("d").await;
    assert_eq!(t.lease_all(&other).await.len(), 1);
    let known = [hold(&grants[1])];
    let reclaimed = t.store.reclaim(&worker(), &known).await;
    assert_eq!(reclaimed.expect("reclaim succeeds"), 2);
    for grant in [&grants[0], &grants[2]] {
        assert_eq!(
            t.state(&grant.key.to_string()).await,
            "ready",
            "the delivery does not count"
        );
    }
    assert_eq!(t.state(&grants[1].key.to_string()).await, "processing, deliveries 1");
    assert_eq!(t.state("d").await, "processing, deliveries 1");
    assert_eq!(t.finish(&grants[0], Finish::Done).await, Finished::LeaseLost);
    assert_eq!(t.finish(&grants[1], Finish::Done).await, Finished::Done);
}

pub(super) async fn reclaim_compares_tokens_not_keys(t: Trial) {
    let old = t.lease_new("a").await;
    t.finish(&old, Finish::Release).await;
    t.lease_one().await;
    let reclaimed = t.store.reclaim(&worker(), &[hold(&old)]).await;
    assert_eq!(reclaimed.expect("reclaim succeeds"), 1);
    let again = t.store.reclaim(&worker(), &[]).await;
    assert_eq!(again.expect("reclaim succeeds"), 0);
    assert_eq!(t.state("a").await, "ready");
}

pub(super) async fn reclaim_ignores_ended_leases(t: Trial) {
    for (name, finish) in [("a", Finish::Done), ("b", Finish::RequeueAfter(secs(1)))] {
        let grant = t.lease_new(name).await;
        t.finish(&grant, finish).await;
    }
    t.lease_new("c").await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    let reclaimed = t.store.reclaim(&worker(), &[]).await;
    assert_eq!(reclaimed.expect("reclaim succeeds"), 0);
}
