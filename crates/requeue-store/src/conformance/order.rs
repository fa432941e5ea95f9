//! First in, first out (rules 3 and 4), and what only a queue with one partition promises:
//! one call leases all ready keys and reports when more are due.

use std::time::Duration;

use requeue::Finish;

use super::histories::{LeaseOrder, replay};
use super::trial::{
    LEASE, Trial, adds_now, finish_request, hold, key, keys, numbered, request, secs,
    worker,
};
use crate::{RepliesExt, Grant, Key, Which};

fn names(grants: &[Grant]) -> Vec<Key> {
    grants.iter().map(|grant| grant.key.clone()).collect()
}

pub(super) async fn keys_are_leased_in_the_order_of_their_adds(t: Trial) {
    t.receipts(&adds_now(&keys(&["c", "a"]))).await;
    t.add("b").await;
    t.add("c").await;
    assert_eq!(names(&t.lease_call(&request(9)).await.grants), keys(&["c", "a", "b"]));
}

pub(super) async fn thousand_keys_are_leased_in_order_in_one_call(t: Trial) {
    t.receipts(&adds_now(&numbered(1000))).await;
    let leased = t.lease_call(&request(1000)).await;
    assert_eq!(names(&leased.grants), numbered(1000));
    let is_growing = leased.grants.is_sorted_by(|a, b| a.token < b.token);
    assert!(is_growing, "tokens grow");
}

pub(super) async fn clock_stepping_back_does_not_change_the_order(t: Trial) {
    t.add("c").await;
    t.clock.set_back(secs(60));
    t.add("a").await;
    t.clock.set_back(secs(60));
    t.add("b").await;
    assert_eq!(names(&t.lease(9).await), keys(&["c", "a", "b"]));
}

pub(super) async fn dirty_key_goes_to_the_tail(t: Trial) {
    let grant = t.lease_new("a").await;
    t.add("a").await;
    t.add("b").await;
    t.finish(&grant, Finish::Done).await;
    t.add("c").await;
    assert_eq!(names(&t.lease(9).await), keys(&["b", "a", "c"]));
}

pub(super) async fn released_key_goes_to_the_tail(t: Trial) {
    let grant = t.lease_new("a").await;
    t.add("b").await;
    t.finish(&grant, Finish::Release).await;
    t.add("c").await;
    assert_eq!(names(&t.lease(9).await), keys(&["b", "a", "c"]));
}

pub(super) async fn batch_of_finishes_keeps_its_order(t: Trial) {
    t.receipts(&adds_now(&keys(&["a", "b", "c"]))).await;
    let grants = t.lease(3).await;
    let release = |number: usize| finish_request(&grants[number], Finish::Release);
    t.finish_all(&[release(2), release(0), release(1)]).await;
    assert_eq!(names(&t.lease(9).await), keys(&["c", "a", "b"]));
}

pub(super) async fn due_key_goes_to_the_tail(t: Trial) {
    t.add_after("a", secs(1)).await;
    t.add("b").await;
    t.clock.advance(secs(1));
    t.add("c").await;
    t.stats().await;
    t.add("d").await;
    assert_eq!(names(&t.lease(9).await), keys(&["b", "c", "a", "d"]));
}

pub(super) async fn due_delays_are_moved_by_time_before_expired_leases(t: Trial) {
    t.receipts(&adds_now(&keys(&["a", "b"]))).await;
    let grants = t.lease(2).await;
    t.extend(&grants[0], secs(4)).await;
    t.extend(&grants[1], secs(3)).await;
    t.add_after("c", secs(6)).await;
    t.add_after("d", secs(5)).await;
    t.clock.advance(secs(6));
    assert_eq!(names(&t.lease(9).await), keys(&["d", "c", "b", "a"]));
}

pub(super) async fn revived_and_reclaimed_keys_go_to_the_tail(t: Trial) {
    t.make_dead("a").await;
    t.lease_new("b").await;
    t.add("c").await;
    t.store.reclaim(&worker(), &[]).await.expect("reclaim succeeds");
    t.store.revive(&Which::All).await.expect("revive succeeds");
    assert_eq!(names(&t.lease(9).await), keys(&["c", "b", "a"]));
}

pub(super) async fn removed_key_joins_again_at_the_tail(t: Trial) {
    t.receipts(&adds_now(&keys(&["a", "b", "c"]))).await;
    t.remove("a").await;
    t.add("a").await;
    t.remove("b").await;
    assert_eq!(names(&t.lease(9).await), keys(&["c", "a"]));
}

pub(super) async fn lease_reports_when_to_ask_again(t: Trial) {
    let more_in = async |max| t.lease_call(&request(max)).await.more_in;
    t.add_after("a", secs(40)).await;
    assert_eq!(more_in(1).await, Some(secs(40)));
    t.receipts(&adds_now(&keys(&["b", "c"]))).await;
    assert_eq!(more_in(1).await, Some(Duration::ZERO), "a key is ready");
    assert_eq!(t.lease(1).await.len(), 1);
    assert_eq!(more_in(1).await, Some(LEASE), "the lease expires first");
    t.clock.advance(secs(20));
    assert_eq!(more_in(1).await, Some(secs(10)));
}

pub(super) async fn lease_reports_when_an_extended_lease_expires(t: Trial) {
    let grant = t.lease_new("a").await;
    let extended = t.store.extend(&worker(), &[hold(&grant)], secs(90)).all().await;
    assert_eq!(extended.expect("extend succeeds"), [true]);
    assert_eq!(t.lease_call(&request(1)).await.more_in, Some(secs(90)));
    t.finish(&grant, Finish::Done).await;
    assert_eq!(t.lease_call(&request(1)).await.more_in, None);
}

pub(super) async fn stats_report_the_oldest_ready_key(t: Trial) {
    t.add("a").await;
    t.clock.advance(secs(5));
    t.add("b").await;
    t.clock.advance(secs(2));
    assert_eq!(t.stats().await.oldest_ready, Some(secs(7)));
    assert_eq!(t.lease_call(&request(1)).await.grants[0].key, key("a"));
    assert_eq!(t.stats().await.oldest_ready, Some(secs(2)));
    t.lease_one().await;
    assert_eq!(t.stats().await.oldest_ready, None);
}

pub(super) async fn random_histories_are_leased_in_order(t: Trial) {
    replay(&t, LeaseOrder::Fifo).await;
}
