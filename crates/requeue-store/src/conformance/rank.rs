//! The most important key first, and no key never (rules 11 and 12).

use std::time::Duration;

use requeue::Finish;

use super::tools::{LEASE, Trial, finish_request, key, keys, millis, ranked, request, secs};
use crate::{Add, Key, When};

/// The keys that are ready, in the order in which they are handed out.
async fn in_order(t: &Trial) -> Vec<Key> {
    t.lease(100).await.into_iter().map(|grant| grant.key).collect()
}

fn all(ranks: &[(&str, i8)]) -> Vec<Add> {
    ranks.iter().map(|(name, priority)| ranked(name, When::Now, *priority)).collect()
}

/// Adds these with their priorities.
async fn given(t: &Trial, ranks: &[(&str, i8)]) {
    t.receipts(&all(ranks)).await;
}

/// Sees to it that the next grants, up to a hundred, are none of those that go to the
/// oldest key: stores that keep no count of them give those with round tokens away.
fn skip_turns_of_the_oldest(t: &Trial) {
    while t.clock.now().micros() % 256 != 128 {
        t.clock.advance(Duration::from_micros(1));
    }
}

pub(super) async fn the_highest_priority_comes_first(t: Trial) {
    skip_turns_of_the_oldest(&t);
    let ranks =
        [("a", 0), ("b", 5), ("c", -5), ("d", 5), ("e", 0), ("f", 127), ("g", -128)];
    let right = keys(&["f", "b", "d", "a", "e", "c", "g"]);
    given(&t, &ranks).await;
    let grants = t.lease(100).await;
    assert_eq!(grants.iter().map(|grant| grant.key.clone()).collect::<Vec<_>>(), right);
    for grant in &grants {
        t.finish(grant, Finish::Done).await;
    }
    for (name, priority) in ranks {
        t.add_ranked(name, priority).await;
    }
    for name in right {
        assert_eq!(t.lease(1).await[0].key, name);
    }
}

pub(super) async fn hundreds_of_keys_of_all_priorities_come_in_order(t: Trial) {
    skip_turns_of_the_oldest(&t);
    let priority = |number: usize| i8::try_from(number * 7 % 100).expect("below 100") - 50;
    let name = |number: usize| number.to_string();
    let adds = (0..500).map(|number| ranked(&name(number), When::Now, priority(number)));
    t.receipts(&adds.collect::<Vec<_>>()).await;
    let mut right: Vec<_> = (0..500).collect();
    right.sort_by_key(|number| std::cmp::Reverse(priority(*number)));
    let grants = t.leased(&request(100)).await.grants;
    let rest = t.leased(&request(500)).await.grants;
    let is: Vec<_> = grants.iter().chain(&rest).map(|grant| grant.key.clone()).collect();
    let right: Vec<_> = right.into_iter().map(|number| key(&name(number))).collect();
    // One of each call may be the oldest.
    let passed = is.iter().zip(&right).take_while(|(is, right)| is == right).count();
    let without = |keys: &[Key], number: &Key| -> Vec<Key> {
        keys.iter().filter(|key| *key != number).cloned().collect()
    };
    let oldest = is.get(passed).cloned().unwrap_or_else(|| key("none"));
    assert_eq!(without(&is, &oldest), without(&right, &oldest));
}

pub(super) async fn a_key_that_is_raised_goes_to_the_end_of_its_new_line(t: Trial) {
    skip_turns_of_the_oldest(&t);
    given(&t, &[("a", 0), ("b", 5), ("c", 0), ("d", -5), ("e", 5)]).await;
    given(&t, &[("a", 5), ("b", 5), ("e", 1), ("d", 0)]).await;
    assert_eq!(in_order(&t).await, keys(&["b", "e", "a", "c", "d"]));
}

pub(super) async fn a_key_is_raised_by_a_delay_too(t: Trial) {
    skip_turns_of_the_oldest(&t);
    given(&t, &[("a", 0), ("b", 0), ("c", 3)]).await;
    t.receipts(&[ranked("b", When::After(secs(9)), 3)]).await;
    assert_eq!(in_order(&t).await, keys(&["c", "b", "a"]));
}

pub(super) async fn what_comes_again_stands_in_the_line_of_its_priority(t: Trial) {
    given(&t, &[("a", 3), ("b", 3), ("c", -3), ("d", 3), ("e", 0)]).await;
    let mut grants = t.lease(5).await;
    grants.sort_by(|a, b| a.key.cmp(&b.key));
    skip_turns_of_the_oldest(&t);
    given(&t, &[("f", 3), ("g", 0), ("b", 1)]).await;
    let finishes = [
        Finish::Release,
        Finish::Done,
        Finish::RequeueAfter(secs(0)),
        Finish::Retry,
        Finish::RequeueAfter(secs(0)),
    ];
    for (grant, finish) in grants.iter().zip(finishes) {
        t.finish(grant, finish).await;
    }
    t.clock.advance(millis(256));
    let right = ["f", "a", "d", "b", "g", "e", "c"];
    assert_eq!(in_order(&t).await, keys(&right));
}

pub(super) async fn what_is_due_stands_in_the_line_of_its_priority(t: Trial) {
    skip_turns_of_the_oldest(&t);
    given(&t, &[("a", 2), ("b", -2)]).await;
    assert_eq!(t.lease(2).await.len(), 2);
    let later = |name, priority| ranked(name, When::After(LEASE), priority);
    t.receipts(&[later("c", -2), later("d", 2), later("e", 0)]).await;
    t.clock.advance(Duration::from_millis(30_720));
    given(&t, &[("f", 2), ("g", 0)]).await;
    assert_eq!(in_order(&t).await, keys(&["f", "d", "a", "g", "e", "c", "b"]));
}

pub(super) async fn a_removed_key_leaves_its_line(t: Trial) {
    skip_turns_of_the_oldest(&t);
    given(&t, &[("a", 2), ("b", 2), ("c", 0), ("d", -2), ("e", -2)]).await;
    for name in ["a", "c", "d"] {
        assert!(t.remove(name).await);
    }
    given(&t, &[("a", -2), ("d", 0)]).await;
    assert_eq!(in_order(&t).await, keys(&["b", "d", "e", "a"]));
}

/// Has so many keys of a high priority come, and ends as many grants: which they were of.
async fn serve(t: &Trial, rivals: usize) -> Vec<Key> {
    let rivals = (0..rivals).map(|number| ranked(&format!("r{number}"), When::Now, 50));
    let adds: Vec<_> = rivals.collect();
    t.receipts(&adds).await;
    let grants = t.lease(adds.len()).await;
    let ends: Vec<_> = grants.iter().map(|grant| finish_request(grant, Finish::Done)).collect();
    t.finish_all(&ends).await;
    grants.into_iter().map(|grant| grant.key).collect()
}

pub(super) async fn no_key_is_passed_over_for_ever(t: Trial) {
    for (priority, rivals) in [(0, 1), (-9, 1), (9, 1), (-9, 20)] {
        t.add_ranked("low", priority).await;
        let mut passed = 0;
        while !serve(&t, rivals).await.contains(&key("low")) {
            passed += rivals;
            assert!(passed < 600, "{priority} was passed over {passed} times");
        }
    }
}

pub(super) async fn none_of_many_priorities_is_passed_over_for_ever(t: Trial) {
    given(&t, &[("a", 40), ("b", 0), ("c", -40), ("d", 30)]).await;
    let mut left = keys(&["a", "b", "c", "d"]);
    for _ in 0..200 {
        let served = serve(&t, 16).await;
        left.retain(|key| !served.contains(key));
    }
    assert_eq!(left, [], "these were passed over all the time");
}

pub(super) async fn lease_tells_of_ready_keys_of_any_priority(t: Trial) {
    for priority in [-3, 3] {
        given(&t, &[("a", priority), ("b", priority)]).await;
        let leased = t.leased(&request(1)).await;
        assert_eq!((leased.grants.len(), leased.more_in), (1, Some(Duration::ZERO)));
        let last = t.leased(&request(2)).await;
        assert_eq!((last.grants.len(), last.paused), (1, false));
        for grant in leased.grants.iter().chain(&last.grants) {
            t.finish(grant, Finish::Done).await;
        }
        assert_eq!(t.leased(&request(1)).await.more_in, None);
    }
}

pub(super) async fn the_oldest_ready_key_is_told_of_whatever_its_priority(t: Trial) {
    let ages = [("a", -3), ("b", 0), ("c", 3)];
    for (name, priority) in ages {
        t.add_ranked(name, priority).await;
        t.clock.advance(secs(1));
    }
    assert_eq!(t.stats().await.oldest_ready, Some(secs(3)));
    t.remove("a").await;
    assert_eq!(t.stats().await.oldest_ready, Some(secs(2)));
    t.remove("b").await;
    assert_eq!(t.stats().await.oldest_ready, Some(secs(1)));
    t.remove("c").await;
    assert_eq!(t.stats().await.oldest_ready, None);
}
