//! Leases belong to one owner at a time and have growing tokens (rules 5 and 7).

use std::time::Duration;

use requeue::Finish;

use super::trial::{
    LEASE, TICK, Trial, adds_now, hold, key, keys, numbered, request, secs, sorted,
};
use crate::{RepliesExt, FinishRequest, Finished, Grant, LeaseRequest, Owner, Phase, Stats};

pub(super) async fn empty_queue_leases_nothing(t: Trial) {
    let leased = t.lease_call(&request(10)).await;
    assert!(leased.grants.is_empty());
    assert_eq!(leased.more_in, None);
    assert!(!leased.paused);
}

pub(super) async fn lease_respects_the_maximum(t: Trial) {
    t.receipts(&adds_now(&keys(&["a", "b", "c"]))).await;
    assert!(t.lease_call(&request(0)).await.grants.is_empty());
    let mut grants = t.lease(2).await;
    assert_eq!(grants.len(), 2);
    grants.extend(t.lease(2).await);
    assert_eq!(sorted(&grants), keys(&["a", "b", "c"]));
    assert!(t.lease(2).await.is_empty());
}

pub(super) async fn leased_key_is_not_leased_to_another_owner(t: Trial) {
    let grant = t.lease_new("a").await;
    let phase = Phase::Processing {
        owner: Owner::new("worker"),
        token: grant.token,
        dirty: false,
    };
    assert_eq!(t.look("a").await.phase, phase);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(5) };
    assert!(t.lease_all(&other).await.is_empty());
    assert_eq!(t.look("a").await.phase, phase);
}

pub(super) async fn grant_reports_deliveries_and_failures(t: Trial) {
    let first = t.lease_new("a").await;
    assert_eq!((first.deliveries, first.failures), (1, 0));
    t.clock.advance(LEASE);
    let second = t.lease_one().await;
    assert_eq!((second.deliveries, second.failures), (2, 0));
    t.finish(&second, Finish::Retry).await;
    t.clock.advance(secs(1));
    let third = t.lease_one().await;
    assert_eq!((third.deliveries, third.failures), (1, 1));
}

pub(super) async fn tokens_grow_and_are_at_least_the_time(t: Trial) {
    let mut last = 0;
    for _ in 0..3 {
        let grant = t.lease_new("a").await;
        assert!(grant.token.0 > last, "{} follows {last}", grant.token);
        assert!(grant.token.0 >= t.clock.now().micros());
        last = grant.token.0;
        t.finish(&grant, Finish::Done).await;
    }
}

pub(super) async fn tokens_grow_when_the_clock_steps_back(t: Trial) {
    let first = t.lease_new("a").await;
    t.finish(&first, Finish::Done).await;
    t.clock.set_back(secs(3600));
    let second = t.lease_new("a").await;
    assert!(second.token > first.token);
    t.finish(&second, Finish::Release).await;
    assert!(t.lease_one().await.token > second.token);
}

/// The tokens of a key grow although its record is deleted in between.
pub(super) async fn tokens_grow_while_the_clock_is_behind(t: Trial) {
    let names = ["a", "b"];
    let mut last = Vec::new();
    for name in names {
        let grant = t.lease_new(name).await;
        t.finish(&grant, Finish::Succeed).await;
        last.push(grant.token);
    }
    t.clock.set_back(secs(3600));
    for _ in 0..3 {
        for (name, last) in names.iter().zip(&mut last) {
            let grant = t.lease_new(name).await;
            t.finish(&grant, Finish::Succeed).await;
            assert!(grant.token > *last, "{name}");
            *last = grant.token;
            t.clock.advance(secs(60));
        }
    }
}

pub(super) async fn longest_possible_lease_is_accepted(t: Trial) {
    t.add("a").await;
    let request = LeaseRequest { lease: Duration::MAX, ..request(1) };
    let grant = t.lease_all(&request).await.remove(0);
    t.clock.advance(secs(3600 * 24 * 365));
    assert_eq!(t.expire(None).await.returned, 0);
    assert_eq!(t.state("a").await, "processing, deliveries 1");
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
}

pub(super) async fn lease_is_rounded_up_to_a_microsecond(t: Trial) {
    t.add("a").await;
    let request = LeaseRequest { lease: Duration::from_nanos(1500), ..request(1) };
    t.lease_all(&request).await;
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await.returned, 0);
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await.returned, 1);
}

pub(super) async fn thousand_keys_are_added_leased_and_finished_in_batches(t: Trial) {
    let mut names = numbered(1000);
    let added = t.adds(&adds_now(&names)).await;
    assert!(added.iter().all(|added| *added == requeue::Added::Ready));
    let grants = t.lease(1000).await;
    names.sort();
    assert_eq!(sorted(&grants), names);
    let holds: Vec<_> = grants.iter().map(hold).collect();
    let held = t.store.extend(&Owner::new("worker"), &holds, LEASE).all().await;
    assert_eq!(held.expect("extend succeeds"), [true; 1000]);
    let done = |grant: &Grant| FinishRequest::new(hold(grant), Finish::Done);
    let requests: Vec<_> = grants.iter().map(done).collect();
    assert_eq!(t.finish_all(&requests).await, [Finished::Done; 1000]);
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn any_maximum_is_accepted(t: Trial) {
    t.receipts(&adds_now(&keys(&["a", "b"]))).await;
    assert_eq!(t.lease(usize::MAX).await.len(), 2);
    assert!(t.store.dead(usize::MAX).await.expect("dead succeeds").is_empty());
    let failing = t.store.failing(usize::MAX).await;
    assert!(failing.expect("failing succeeds").is_empty());
}

pub(super) async fn owner_may_have_any_name(t: Trial) {
    for name in ["", "host:1/{a} 'b' \"c\"", "größer\n", "\\x00%s"] {
        t.add("a").await;
        let owner = Owner::new(name);
        let request = LeaseRequest { owner: owner.clone(), ..request(1) };
        let grant = t.lease_all(&request).await.remove(0);
        let token = grant.token;
        let phase = Phase::Processing { owner, token, dirty: false };
        assert_eq!(t.look("a").await.phase, phase);
        t.finish(&grant, Finish::Done).await;
    }
    assert_eq!(t.look("a").await.phase, Phase::Absent, "{:?}", key("a"));
}
