//! The clock of an embedded store, which steps as the plan says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use requeue_store::{EngineClock, Store, forward_store};

use crate::run::plan::Plan;
use crate::time::now;

/// A clock that follows the machine's clock, except for the steps of the plan.
#[derive(Clone)]
pub(super) struct SteppedClock {
    pub(super) clock: EngineClock,
    plan: Plan,
    /// Held while the clock is set.
    setting: Arc<Mutex<()>>,
}

impl SteppedClock {
    pub(super) fn new(plan: &Plan) -> Self {
        let clock = EngineClock::new();
        let clock = Self { clock, plan: plan.clone(), setting: Arc::default() };
        clock.set();
        clock
    }

    fn set(&self) {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, before) = (now(), self.clock.now().micros());
        let target = time + self.plan.clock_offset(time);
        let distance = Duration::from_micros(target.abs_diff(before));
        if target >= before {
            self.clock.advance(distance);
        } else {
            self.clock.set_back(distance);
        }
    }
}

/// Sets the clock of a store before each call.
pub(super) struct ClockedStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: SteppedClock,
}

impl ClockedStore {
    fn at_its_time(&self) -> &dyn Store {
        self.clock.set();
        &*self.store
    }
}

impl Store for ClockedStore {
    forward_store!(self => self.at_its_time(); describe, add, lease, extend, heartbeat,
        finish, reclaim, expire, forget, remove, look, take, lane, stats, failing, workers,
        dead, revive, drop_dead, pause, resume, wait);
}
