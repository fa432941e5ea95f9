//! Long random histories over a handful of keys.

use proptest::prelude::*;

use super::driver::{Driver, End, Setting, Step};
use super::model::Key;

const KEYS: Key = 6;

fn step() -> impl Strategy<Value = Step> {
    let (key, delay) = (0..KEYS, 0..4u64);
    prop_oneof![
        8 => key.clone().prop_map(Step::Add),
        6 => (key.clone(), 1..5u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        2 => key.clone().prop_map(Step::AddFailed),
        2 => (key.clone(), delay.clone()).prop_map(|(key, d)| Step::Postpone(key, d)),
        3 => key.clone().prop_map(Step::Remove),
        1 => key.prop_map(Step::Forget),
        2 => (0..KEYS).prop_map(Step::AddMany),
        8 => Just(Step::Take),
        3 => (0..4usize).prop_map(Step::TakeMany),
        2 => any::<bool>().prop_map(Step::DoneMany),
        3 => Just(Step::Finish(End::Done)),
        1 => Just(Step::Finish(End::Succeed)),
        3 => Just(Step::Finish(End::Retry)),
        2 => delay.clone().prop_map(|delay| Step::Finish(End::RetryAfter(delay))),
        6 => delay.prop_map(Step::CatchUp),
    ]
}

/// A history that may end with the closing of the queue, and some steps after that.
fn history() -> impl Strategy<Value = Vec<Step>> {
    let close = prop_oneof![
        Just(vec![]),
        Just(vec![Step::Close]),
        Just(vec![Step::CloseNow]),
        Just(vec![Step::Close, Step::CloseNow]),
    ];
    let before = prop::collection::vec(step(), 0..80);
    let after = prop::collection::vec(step(), 0..20);
    (before, close, after).prop_map(|(before, close, after)| {
        before.into_iter().chain(close).chain(after).collect()
    })
}

fn setting() -> impl Strategy<Value = Setting> {
    let unit = prop_oneof![Just(1), Just(1 << 20), Just(1 << 50)];
    (any::<bool>(), 0..4usize, any::<bool>(), unit).prop_map(
        |(absorb, max_tracked, boxed, unit)| Setting { absorb, max_tracked, boxed, unit },
    )
}

fn follow<K: Clone + Eq + std::fmt::Debug>(
    setting: Setting,
    make: fn(Key) -> K,
    history: &[Step],
) {
    let mut driver = Driver::new(setting, KEYS, make);
    for step in history {
        driver.step(*step);
        driver.compare();
    }
    driver.drain();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn long_histories_of_numbers_follow_the_rules(
        setting in setting(), history in history()
    ) {
        follow(setting, |key| key, &history);
    }

    #[test]
    fn long_histories_of_strings_follow_the_rules(
        setting in setting(), history in history()
    ) {
        follow(setting, |key| key.to_string(), &history);
    }
}
