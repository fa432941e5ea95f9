//! Leases that run out, are extended or reclaimed (rules 3 and 8).

use requeue::Finish;

use super::tools::{LEASE, TICK, Trial, all_now, hold, just_before, key, keys, many, request, secs, sorted, worker};
use crate::{Expired, Finished, Hold, LeaseRequest, Owner, Token};

const NOTHING: Expired = Expired { due: 0, returned: 0, dead: 0 };

pub(super) async fn a_lease_runs_out_at_its_deadline_and_not_a_microsecond_before(t: Trial) {
    t.take("a").await;
    t.clock.advance(just_before(LEASE));
    assert_eq!(t.expire(None).await, NOTHING);
    assert!(t.lease(1).await.is_empty());
    assert_eq!(t.shows("a").await, "processing, deliveries 1");
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NOTHING });
    assert_eq!(t.shows("a").await, "ready, deliveries 1");
}

pub(super) async fn whoever_asks_next_gets_a_key_whose_lease_ran_out(t: Trial) {
    let first = t.take("a").await;
    t.clock.advance(LEASE);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    let second = t.lease_as(&other).await.remove(0);
    assert_eq!((&second.key, second.deliveries), (&first.key, 2));
    assert!(second.token > first.token);
    assert_eq!(t.finish(&first, Finish::Done).await, Finished::LeaseLost);
    assert_eq!(t.finish(&second, Finish::Done).await, Finished::Done);
}

pub(super) async fn until_it_is_moved_the_holder_can_end_it(t: Trial) {
    let grant = t.take("a").await;
    t.clock.advance(LEASE + secs(60));
    assert_eq!(t.shows("a").await, "processing, deliveries 1");
    assert_eq!(t.stats().await.processing, 1);
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
    assert_eq!(t.expire(None).await, NOTHING);
}

pub(super) async fn until_it_is_moved_the_holder_can_extend_it(t: Trial) {
    let grant = t.take("a").await;
    t.clock.advance(LEASE + secs(60));
    assert!(t.extend(&grant, LEASE).await);
    assert_eq!(t.expire(None).await, NOTHING);
    t.clock.advance(LEASE);
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NOTHING });
}

pub(super) async fn a_dirty_key_whose_lease_runs_out_comes_once(t: Trial) {
    t.take("a").await;
    t.add("a").await;
    t.clock.advance(LEASE);
    let again = t.lease_one().await;
    assert_eq!(t.shows("a").await, "processing, deliveries 2");
    assert_eq!(t.finish(&again, Finish::Done).await, Finished::Done);
    assert!(t.lease(1).await.is_empty());
}

pub(super) async fn a_key_whose_lease_runs_out_keeps_its_delay_and_failures(t: Trial) {
    t.take_failed("a").await;
    t.add_after("a", secs(90)).await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    assert_eq!(t.shows("a").await, "ready, delayed 60s, failures 1, deliveries 1");
}

pub(super) async fn an_extended_lease_lasts_from_then_on(t: Trial) {
    let grant = t.take("a").await;
    t.clock.advance(secs(20));
    assert!(t.extend(&grant, LEASE).await);
    t.clock.advance(just_before(LEASE));
    assert_eq!(t.expire(None).await, NOTHING);
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NOTHING });
}

pub(super) async fn an_extension_may_make_a_lease_shorter(t: Trial) {
    let grant = t.take("a").await;
    assert!(t.extend(&grant, secs(2)).await);
    t.clock.advance(secs(2));
    assert_eq!(t.expire(None).await, Expired { returned: 1, ..NOTHING });
}

pub(super) async fn an_extension_changes_nothing_else(t: Trial) {
    let grant = t.take_failed("a").await;
    t.add("a").await;
    t.add_after("a", secs(90)).await;
    let before = t.look("a").await;
    assert!(t.extend(&grant, LEASE).await);
    assert_eq!(t.look("a").await, before);
}

pub(super) async fn extend_says_of_each_lease_whether_it_was_held(t: Trial) {
    let lost = t.take("lost").await;
    t.clock.advance(LEASE);
    t.lease_one().await;
    let held = t.take("held").await;
    let unknown = Hold { key: key("unknown"), token: Token(1) };
    let holds = [hold(&held), hold(&lost), unknown, hold(&held)];
    let kept = t.store.extend(&worker(), &holds, LEASE).await;
    assert_eq!(kept.expect("leases are extended"), [true, false, false, true]);
    let none = t.store.extend(&worker(), &[], LEASE).await;
    assert!(none.expect("leases are extended").is_empty());
    assert_eq!(t.shows("unknown").await, "absent");
}

pub(super) async fn a_thousand_leases_that_run_out_at_once_all_come_back(t: Trial) {
    let mut names = many(1000);
    t.receipts(&all_now(&names)).await;
    assert_eq!(t.lease(1000).await.len(), 1000);
    t.clock.advance(LEASE);
    let grants = t.lease(1000).await;
    names.sort();
    assert_eq!(sorted(&grants), names);
    assert!(grants.iter().all(|grant| grant.deliveries == 2));
}

pub(super) async fn reclaim_releases_what_the_owner_does_not_know_of(t: Trial) {
    t.receipts(&all_now(&keys(&["a", "b", "c"]))).await;
    let grants = t.lease(3).await;
    let other = LeaseRequest { owner: Owner::new("other"), ..request(1) };
    t.add("d").await;
    assert_eq!(t.lease_as(&other).await.len(), 1);
    let known = [hold(&grants[1])];
    let reclaimed = t.store.reclaim(&worker(), &known).await;
    assert_eq!(reclaimed.expect("leases are reclaimed"), 2);
    for grant in [&grants[0], &grants[2]] {
        assert_eq!(t.shows(&grant.key.to_string()).await, "ready", "taken back whole");
    }
    assert_eq!(t.shows(&grants[1].key.to_string()).await, "processing, deliveries 1");
    assert_eq!(t.shows("d").await, "processing, deliveries 1");
    assert_eq!(t.finish(&grants[0], Finish::Done).await, Finished::LeaseLost);
    assert_eq!(t.finish(&grants[1], Finish::Done).await, Finished::Done);
}

pub(super) async fn reclaim_goes_by_the_token_and_not_the_key(t: Trial) {
    let old = t.take("a").await;
    t.finish(&old, Finish::Release).await;
    t.lease_one().await;
    let reclaimed = t.store.reclaim(&worker(), &[hold(&old)]).await;
    assert_eq!(reclaimed.expect("leases are reclaimed"), 1);
    let again = t.store.reclaim(&worker(), &[]).await;
    assert_eq!(again.expect("leases are reclaimed"), 0);
    assert_eq!(t.shows("a").await, "ready");
}

pub(super) async fn reclaim_knows_no_lease_that_has_ended(t: Trial) {
    for (name, finish) in [("a", Finish::Done), ("b", Finish::RequeueAfter(secs(1)))] {
        let grant = t.take(name).await;
        t.finish(&grant, finish).await;
    }
    t.take("c").await;
    t.clock.advance(LEASE);
    t.expire(None).await;
    let reclaimed = t.store.reclaim(&worker(), &[]).await;
    assert_eq!(reclaimed.expect("leases are reclaimed"), 0);
}
