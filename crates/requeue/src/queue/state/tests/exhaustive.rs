//! Every history of a few steps over two keys.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::driver::{Driver, End, Setting, Step};
use super::model::{Key, Model};

/// All that can happen, for short histories.
const ALL: [Step; 16] = [
    Step::Add(0),
    Step::Add(1),
    Step::AddAfter(0, 1),
    Step::AddAfter(1, 1),
    Step::AddAfter(0, 2),
    Step::Postpone(0, 2),
    Step::Remove(0),
    Step::Remove(1),
    Step::Take,
    Step::Finish(End::Done),
    Step::Finish(End::Retry),
    Step::TakeMany(2),
    Step::DoneMany(false),
    Step::CatchUp(1),
    Step::Close,
    Step::CloseNow,
];

/// What client-go can do, for longer ones.
const CORE: [Step; 8] = [
    Step::Add(0),
    Step::Add(1),
    Step::AddAfter(0, 1),
    Step::Take,
    Step::Finish(End::Done),
    Step::CatchUp(1),
    Step::Remove(0),
    Step::Close,
];

struct Explorer<K> {
    setting: Setting,
    make: fn(Key) -> K,
    steps: &'static [Step],
    length: usize,
    histories: usize,
}

impl<K: Clone + Eq + Debug> Explorer<K> {
    /// Runs every history that goes on from `history`, which led to `before`. A step that
    /// changes nothing is taken, but nothing is taken after it.
    fn explore(&mut self, history: &mut Vec<Step>, before: &Model) {
        for step in self.steps {
            history.push(*step);
            self.histories += 1;
            let model = replay(self.setting, self.make, history);
            let changed = model != *before || matches!(step, Step::CatchUp(_));
            if changed && history.len() < self.length {
                self.explore(history, &model);
            }
            history.pop();
        }
    }
}

/// All steps before the last have been compared by a shorter history.
fn replay<K: Clone + Eq + Debug>(
    setting: Setting,
    make: fn(Key) -> K,
    history: &[Step],
) -> Model {
    let run = || {
        let mut driver = Driver::new(setting, 2, make);
        for step in history {
            driver.step(*step);
        }
        driver.compare();
        let model = driver.model.clone();
        driver.drain();
        model
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| {
        println!("{setting:?} {history:?}");
        resume_unwind(cause)
    })
}

fn explore<K: Clone + Eq + Debug>(
    absorb: bool,
    make: fn(Key) -> K,
    (steps, length): (&'static [Step], usize),
) -> usize {
    let setting = Setting { absorb, max_tracked: 1, boxed: false, unit: 1 };
    let start = Driver::new(setting, 2, make).model;
    let mut explorer = Explorer { setting, make, steps, length, histories: 0 };
    explorer.explore(&mut Vec::new(), &start);
    explorer.histories
}

#[test]
fn every_short_history_of_numbers_follows_the_rules() {
    assert!(explore(false, |key| key, (&ALL, 5)) > 10_000);
}

#[test]
fn every_longer_history_of_strings_follows_the_rules_of_client_go() {
    assert!(explore(false, |key| key.to_string(), (&CORE, 7)) > 10_000);
}

#[test]
fn every_short_history_that_absorbs_delays_follows_the_rules() {
    assert!(explore(true, |key| key, (&ALL, 5)) > 10_000);
}
