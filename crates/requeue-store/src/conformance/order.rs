//! First come, first served (rules 3 and 4), and what only a queue in one piece promises:
//! as many keys as there are, and when there are more.

use std::time::Duration;

use requeue::Finish;

use super::histories::{Line, replay};
use super::tools::{LEASE, Trial, all_now, finish_request, hold, key, keys, many, request, secs, worker};
use crate::{Grant, Key, Which};

fn names(grants: &[Grant]) -> Vec<Key> {
    grants.iter().map(|grant| grant.key.clone()).collect()
}

pub(super) async fn keys_come_in_the_order_in_which_they_were_added(t: Trial) {
    t.receipts(&all_now(&keys(&["c", "a"]))).await;
    t.add("b").await;
    t.add("c").await;
    assert_eq!(names(&t.leased(&request(9)).await.grants), keys(&["c", "a", "b"]));
}

pub(super) async fn a_thousand_keys_come_in_one_call_and_in_order(t: Trial) {
    t.receipts(&all_now(&many(1000))).await;
    let leased = t.leased(&request(1000)).await;
    assert_eq!(names(&leased.grants), many(1000));
    let growing = leased.grants.is_sorted_by(|a, b| a.token < b.token);
    assert!(growing, "no token is given out twice");
}

pub(super) async fn the_order_outlives_a_clock_that_steps_back(t: Trial) {
    t.add("c").await;
    t.clock.set_back(secs(60));
    t.add("a").await;
    t.clock.set_back(secs(60));
    t.add("b").await;
    assert_eq!(names(&t.lease(9).await), keys(&["c", "a", "b"]));
}

pub(super) async fn a_dirty_key_goes_to_the_end_of_the_line(t: Trial) {
    let grant = t.take("a").await;
    t.add("a").await;
    t.add("b").await;
    t.finish(&grant, Finish::Done).await;
    t.add("c").await;
    assert_eq!(names(&t.lease(9).await), keys(&["b", "a", "c"]));
}

pub(super) async fn a_released_key_goes_to_the_end_of_the_line(t: Trial) {
    let grant = t.take("a").await;
    t.add("b").await;
    t.finish(&grant, Finish::Release).await;
    t.add("c").await;
    assert_eq!(names(&t.lease(9).await), keys(&["b", "a", "c"]));
}

pub(super) async fn a_batch_of_ends_keeps_its_order(t: Trial) {
    t.receipts(&all_now(&keys(&["a", "b", "c"]))).await;
    let grants = t.lease(3).await;
    let release = |number: usize| finish_request(&grants[number], Finish::Release);
    t.finish_all(&[release(2), release(0), release(1)]).await;
    assert_eq!(names(&t.lease(9).await), keys(&["c", "a", "b"]));
}

pub(super) async fn a_key_whose_delay_is_over_goes_to_the_end_of_the_line(t: Trial) {
    t.add_after("a", secs(1)).await;
    t.add("b").await;
    t.clock.advance(secs(1));
    t.add("c").await;
    t.stats().await;
    t.add("d").await;
    assert_eq!(names(&t.lease(9).await), keys(&["b", "c", "a", "d"]));
}

pub(super) async fn delays_that_are_over_come_by_time_and_leases_after_them(t: Trial) {
    t.receipts(&all_now(&keys(&["a", "b"]))).await;
    let grants = t.lease(2).await;
    t.extend(&grants[0], secs(4)).await;
    t.extend(&grants[1], secs(3)).await;
    t.add_after("c", secs(6)).await;
    t.add_after("d", secs(5)).await;
    t.clock.advance(secs(6));
    assert_eq!(names(&t.lease(9).await), keys(&["d", "c", "b", "a"]));
}

pub(super) async fn revived_and_reclaimed_keys_go_to_the_end_of_the_line(t: Trial) {
    t.dead("a").await;
    t.take("b").await;
    t.add("c").await;
    t.store.reclaim(&worker(), &[]).await.expect("leases are reclaimed");
    t.store.revive(&Which::All).await.expect("dead keys are revived");
    assert_eq!(names(&t.lease(9).await), keys(&["c", "b", "a"]));
}

pub(super) async fn a_key_that_was_removed_comes_at_its_new_place(t: Trial) {
    t.receipts(&all_now(&keys(&["a", "b", "c"]))).await;
    t.remove("a").await;
    t.add("a").await;
    t.remove("b").await;
    assert_eq!(names(&t.lease(9).await), keys(&["c", "a"]));
}

pub(super) async fn lease_says_when_to_ask_again(t: Trial) {
    let more_in = async |max| t.leased(&request(max)).await.more_in;
    t.add_after("a", secs(40)).await;
    assert_eq!(more_in(1).await, Some(secs(40)));
    t.receipts(&all_now(&keys(&["b", "c"]))).await;
    assert_eq!(more_in(1).await, Some(Duration::ZERO), "one is ready");
    assert_eq!(t.lease(1).await.len(), 1);
    assert_eq!(more_in(1).await, Some(LEASE), "the lease runs out first");
    t.clock.advance(secs(20));
    assert_eq!(more_in(1).await, Some(secs(10)));
}

pub(super) async fn lease_says_when_an_extended_lease_runs_out(t: Trial) {
    let grant = t.take("a").await;
    let extended = t.store.extend(&worker(), &[hold(&grant)], secs(90)).await;
    assert_eq!(extended.expect("leases are extended"), [true]);
    assert_eq!(t.leased(&request(1)).await.more_in, Some(secs(90)));
    t.finish(&grant, Finish::Done).await;
    assert_eq!(t.leased(&request(1)).await.more_in, None);
}

pub(super) async fn the_oldest_ready_key_is_told_of(t: Trial) {
    t.add("a").await;
    t.clock.advance(secs(5));
    t.add("b").await;
    t.clock.advance(secs(2));
    assert_eq!(t.stats().await.oldest_ready, Some(secs(7)));
    assert_eq!(t.leased(&request(1)).await.grants[0].key, key("a"));
    assert_eq!(t.stats().await.oldest_ready, Some(secs(2)));
    t.lease_one().await;
    assert_eq!(t.stats().await.oldest_ready, None);
}

pub(super) async fn any_history_is_served_in_order(t: Trial) {
    replay(&t, Line::InOrder).await;
}
