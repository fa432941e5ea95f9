//! Leases: to one worker at a time, with tokens that grow (rules 5 and 7).

use std::time::Duration;

use requeue::Finish;

use super::tools::{LEASE, TICK, Trial, all_now, hold, key, keys, many, request, secs, sorted};
use crate::{FinishRequest, Finished, Grant, LeaseRequest, Owner, Phase, Stats};

pub(super) async fn nothing_is_leased_of_an_empty_queue(t: Trial) {
    let leased = t.leased(&request(10)).await;
    assert!(leased.grants.is_empty());
    assert_eq!(leased.more_in, None);
    assert!(!leased.paused);
}

pub(super) async fn no_more_are_leased_than_were_asked_for(t: Trial) {
    t.receipts(&all_now(&keys(&["a", "b", "c"]))).await;
    assert!(t.leased(&request(0)).await.grants.is_empty());
    let mut grants = t.lease(2).await;
    assert_eq!(grants.len(), 2);
    grants.extend(t.lease(2).await);
    assert_eq!(sorted(&grants), keys(&["a", "b", "c"]));
    assert!(t.lease(2).await.is_empty());
}

pub(super) async fn a_leased_key_is_with_its_worker_alone(t: Trial) {
    let grant = t.take("a").await;
    let phase = Phase::Processing {
        owner: Owner::new("worker"),
        token: grant.token,
        dirty: false,
    };
    assert_eq!(t.look("a").await.phase, phase);
    let other = LeaseRequest { owner: Owner::new("other"), ..request(5) };
    assert!(t.lease_as(&other).await.is_empty());
    assert_eq!(t.look("a").await.phase, phase);
}

pub(super) async fn a_grant_says_how_often_the_key_was_granted_and_failed(t: Trial) {
    let first = t.take("a").await;
    assert_eq!((first.deliveries, first.failures), (1, 0));
    t.clock.advance(LEASE);
    let second = t.lease_one().await;
    assert_eq!((second.deliveries, second.failures), (2, 0));
    t.finish(&second, Finish::Retry).await;
    t.clock.advance(secs(1));
    let third = t.lease_one().await;
    assert_eq!((third.deliveries, third.failures), (1, 1));
}

pub(super) async fn tokens_grow_and_are_no_smaller_than_the_time(t: Trial) {
    let mut last = 0;
    for _ in 0..3 {
        let grant = t.take("a").await;
        assert!(grant.token.0 > last, "{} comes after {last}", grant.token);
        assert!(grant.token.0 >= t.clock.now().micros());
        last = grant.token.0;
        t.finish(&grant, Finish::Done).await;
    }
}

pub(super) async fn tokens_grow_when_the_clock_steps_back(t: Trial) {
    let first = t.take("a").await;
    t.finish(&first, Finish::Done).await;
    t.clock.set_back(secs(3600));
    let second = t.take("a").await;
    assert!(second.token > first.token);
    t.finish(&second, Finish::Release).await;
    assert!(t.lease_one().await.token > second.token);
}

pub(super) async fn a_lease_may_be_as_long_as_can_be_said(t: Trial) {
    t.add("a").await;
    let request = LeaseRequest { lease: Duration::MAX, ..request(1) };
    let grant = t.lease_as(&request).await.remove(0);
    t.clock.advance(secs(3600 * 24 * 365));
    assert_eq!(t.expire(None).await.returned, 0);
    assert_eq!(t.shows("a").await, "processing, deliveries 1");
    assert_eq!(t.finish(&grant, Finish::Done).await, Finished::Done);
}

pub(super) async fn a_part_of_a_microsecond_of_a_lease_is_rounded_up(t: Trial) {
    t.add("a").await;
    let request = LeaseRequest { lease: Duration::from_nanos(1500), ..request(1) };
    t.lease_as(&request).await;
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await.returned, 0);
    t.clock.advance(TICK);
    assert_eq!(t.expire(None).await.returned, 1);
}

pub(super) async fn a_thousand_keys_are_added_leased_and_ended_in_a_batch(t: Trial) {
    let mut names = many(1000);
    let added = t.adds(&all_now(&names)).await;
    assert!(added.iter().all(|added| *added == requeue::Added::Ready));
    let grants = t.lease(1000).await;
    names.sort();
    assert_eq!(sorted(&grants), names);
    let holds: Vec<_> = grants.iter().map(hold).collect();
    let kept = t.store.extend(&Owner::new("worker"), &holds, LEASE).await;
    assert_eq!(kept.expect("leases are extended"), [true; 1000]);
    let end = |grant: &Grant| FinishRequest::new(hold(grant), Finish::Done);
    let ends: Vec<_> = grants.iter().map(end).collect();
    assert_eq!(t.finish_all(&ends).await, [Finished::Done; 1000]);
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn any_number_of_keys_may_be_asked_for(t: Trial) {
    t.receipts(&all_now(&keys(&["a", "b"]))).await;
    assert_eq!(t.lease(usize::MAX).await.len(), 2);
    assert!(t.store.dead(usize::MAX).await.expect("dead keys are listed").is_empty());
    let failing = t.store.failing(usize::MAX).await;
    assert!(failing.expect("failing keys are listed").is_empty());
}

pub(super) async fn owners_may_have_any_name(t: Trial) {
    for name in ["", "host:1/{a} 'b' \"c\"", "größer\n", "\\x00%s"] {
        t.add("a").await;
        let owner = Owner::new(name);
        let request = LeaseRequest { owner: owner.clone(), ..request(1) };
        let grant = t.lease_as(&request).await.remove(0);
        let token = grant.token;
        let phase = Phase::Processing { owner, token, dirty: false };
        assert_eq!(t.look("a").await.phase, phase);
        t.finish(&grant, Finish::Done).await;
    }
    assert_eq!(t.look("a").await.phase, Phase::Absent, "{:?}", key("a"));
}
