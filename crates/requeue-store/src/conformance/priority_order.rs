//! Higher priorities first, and no key starves (rules 11 and 12).

use std::time::Duration;

use requeue::Finish;

use super::trial::{
    LEASE, Trial, finish_request, key, keys, millis, request, secs, with_priority,
};
use crate::{Add, Key, When};

/// Leases all ready keys.
async fn in_order(t: &Trial) -> Vec<Key> {
    t.lease(100).await.into_iter().map(|grant| grant.key).collect()
}

fn adds(priorities: &[(&str, i8)]) -> Vec<Add> {
    priorities
        .iter()
        .map(|(name, priority)| with_priority(name, When::Now, *priority))
        .collect()
}

/// Adds keys with priorities.
async fn add_all(t: &Trial, priorities: &[(&str, i8)]) {
    t.receipts(&adds(priorities)).await;
}

/// Moves the clock so that none of the next hundred leases goes to the oldest key. A store
/// that does not count leases chooses them by round tokens.
fn avoid_fair_leases(t: &Trial) {
    while t.clock.now().micros() % 256 != 128 {
        t.clock.advance(Duration::from_micros(1));
    }
}

pub(super) async fn highest_priority_is_leased_first(t: Trial) {
    avoid_fair_leases(&t);
    let priorities =
        [("a", 0), ("b", 5), ("c", -5), ("d", 5), ("e", 0), ("f", 127), ("g", -128)];
    let right = keys(&["f", "b", "d", "a", "e", "c", "g"]);
    add_all(&t, &priorities).await;
    let grants = t.lease(100).await;
    assert_eq!(grants.iter().map(|grant| grant.key.clone()).collect::<Vec<_>>(), right);
    for grant in &grants {
        t.finish(grant, Finish::Done).await;
    }
    for (name, priority) in priorities {
        t.add_with_priority(name, priority).await;
    }
    for name in right {
        assert_eq!(t.lease(1).await[0].key, name);
    }
}

pub(super) async fn hundreds_of_keys_are_leased_by_priority(t: Trial) {
    avoid_fair_leases(&t);
    let priority =
        |number: usize| i8::try_from(number * 7 % 100).expect("below 100") - 50;
    let name = |number: usize| number.to_string();
    let adds =
        (0..500).map(|number| with_priority(&name(number), When::Now, priority(number)));
    t.receipts(&adds.collect::<Vec<_>>()).await;
    let mut right: Vec<_> = (0..500).collect();
    right.sort_by_key(|number| std::cmp::Reverse(priority(*number)));
    let grants = t.lease_call(&request(100)).await.grants;
    let rest = t.lease_call(&request(500)).await.grants;
    let is: Vec<_> = grants.iter().chain(&rest).map(|grant| grant.key.clone()).collect();
    let right: Vec<_> = right.into_iter().map(|number| key(&name(number))).collect();
    // One lease of each call may go to the oldest key.
    let passed = is.iter().zip(&right).take_while(|(is, right)| is == right).count();
    let without = |keys: &[Key], number: &Key| -> Vec<Key> {
        keys.iter().filter(|key| *key != number).cloned().collect()
    };
    let oldest = is.get(passed).cloned().unwrap_or_else(|| key("none"));
    assert_eq!(without(&is, &oldest), without(&right, &oldest));
}

pub(super) async fn raised_key_goes_to_the_tail_of_its_priority(t: Trial) {
    avoid_fair_leases(&t);
    add_all(&t, &[("a", 0), ("b", 5), ("c", 0), ("d", -5), ("e", 5)]).await;
    add_all(&t, &[("a", 5), ("b", 5), ("e", 1), ("d", 0)]).await;
    assert_eq!(in_order(&t).await, keys(&["b", "e", "a", "c", "d"]));
}

pub(super) async fn delayed_add_raises_a_key_too(t: Trial) {
    avoid_fair_leases(&t);
    add_all(&t, &[("a", 0), ("b", 0), ("c", 3)]).await;
    t.receipts(&[with_priority("b", When::After(secs(9)), 3)]).await;
    assert_eq!(in_order(&t).await, keys(&["c", "b", "a"]));
}

pub(super) async fn requeued_key_joins_the_tail_of_its_priority(t: Trial) {
    add_all(&t, &[("a", 3), ("b", 3), ("c", -3), ("d", 3), ("e", 0)]).await;
    let mut grants = t.lease(5).await;
    grants.sort_by(|a, b| a.key.cmp(&b.key));
    avoid_fair_leases(&t);
    add_all(&t, &[("f", 3), ("g", 0), ("b", 1)]).await;
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

pub(super) async fn due_key_joins_the_tail_of_its_priority(t: Trial) {
    avoid_fair_leases(&t);
    add_all(&t, &[("a", 2), ("b", -2)]).await;
    assert_eq!(t.lease(2).await.len(), 2);
    let later = |name, priority| with_priority(name, When::After(LEASE), priority);
    t.receipts(&[later("c", -2), later("d", 2), later("e", 0)]).await;
    t.clock.advance(Duration::from_millis(30_720));
    add_all(&t, &[("f", 2), ("g", 0)]).await;
    assert_eq!(in_order(&t).await, keys(&["f", "d", "a", "g", "e", "c", "b"]));
}

pub(super) async fn removed_key_leaves_its_place(t: Trial) {
    avoid_fair_leases(&t);
    add_all(&t, &[("a", 2), ("b", 2), ("c", 0), ("d", -2), ("e", -2)]).await;
    for name in ["a", "c", "d"] {
        assert!(t.remove(name).await);
    }
    add_all(&t, &[("a", -2), ("d", 0)]).await;
    assert_eq!(in_order(&t).await, keys(&["b", "d", "e", "a"]));
}

/// Adds this many keys with a high priority, and leases and finishes as many keys. Returns
/// the leased keys.
async fn serve(t: &Trial, rivals: usize) -> Vec<Key> {
    let rivals =
        (0..rivals).map(|number| with_priority(&format!("r{number}"), When::Now, 50));
    let adds: Vec<_> = rivals.collect();
    t.receipts(&adds).await;
    let grants = t.lease(adds.len()).await;
    let done = |grant| finish_request(grant, Finish::Done);
    let requests: Vec<_> = grants.iter().map(done).collect();
    t.finish_all(&requests).await;
    grants.into_iter().map(|grant| grant.key).collect()
}

pub(super) async fn low_priority_key_never_starves(t: Trial) {
    for (priority, rivals) in [(0, 1), (-9, 1), (9, 1), (-9, 20)] {
        t.add_with_priority("low", priority).await;
        let mut passed = 0;
        while !serve(&t, rivals).await.contains(&key("low")) {
            passed += rivals;
            assert!(
                passed < 600,
                "the key with priority {priority} was passed over {passed} times"
            );
        }
    }
}

pub(super) async fn none_of_many_priorities_starves(t: Trial) {
    add_all(&t, &[("a", 40), ("b", 0), ("c", -40), ("d", 30)]).await;
    let mut left = keys(&["a", "b", "c", "d"]);
    for _ in 0..200 {
        let served = serve(&t, 16).await;
        left.retain(|key| !served.contains(key));
    }
    assert_eq!(left, [], "these keys starved");
}

pub(super) async fn lease_reports_ready_keys_of_any_priority(t: Trial) {
    for priority in [-3, 3] {
        add_all(&t, &[("a", priority), ("b", priority)]).await;
        let leased = t.lease_call(&request(1)).await;
        assert_eq!((leased.grants.len(), leased.more_in), (1, Some(Duration::ZERO)));
        let last = t.lease_call(&request(2)).await;
        assert_eq!((last.grants.len(), last.paused), (1, false));
        for grant in leased.grants.iter().chain(&last.grants) {
            t.finish(grant, Finish::Done).await;
        }
        assert_eq!(t.lease_call(&request(1)).await.more_in, None);
    }
}

pub(super) async fn stats_report_the_oldest_key_of_any_priority(t: Trial) {
    let ages = [("a", -3), ("b", 0), ("c", 3)];
    for (name, priority) in ages {
        t.add_with_priority(name, priority).await;
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
