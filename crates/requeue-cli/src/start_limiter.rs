//! Limits the rate at which commands start.

use std::sync::{Mutex, PoisonError};

use requeue::rate::{Limit, Limiter};
use requeue::{Clock, SystemClock};
use requeue_store::Error;

use crate::queue::{RunLease, RunQueue};
use crate::signals::Control;

/// Gives out keys no faster than a limit.
///
/// A worker takes its token and its key together, one worker at a time. A key taken first
/// would wait in the worker, where duplicates cannot be merged with it. A token taken first
/// would let each idle worker save one up, and all of them would start at once.
#[derive(Debug)]
pub(crate) struct StartLimiter {
    limiter: Limiter,
    turn: Mutex<()>,
}

impl StartLimiter {
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        Self {
            limiter: Limiter::new(Limit::per_second(per_second), burst),
            turn: Mutex::new(()),
        }
    }

    /// Waits for a token and a key. Returns `None` if no more keys start.
    pub(crate) fn get(
        &self,
        queue: &RunQueue,
        control: &Control,
    ) -> Result<Option<RunLease>, Error> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = if self.wait_for_token(control) { queue.get()? } else { None };
        if lease.is_some() {
            let taken = self.limiter.allow();
            debug_assert!(taken, "only the worker whose turn it is takes tokens");
        }
        drop(turn);
        Ok(lease)
    }

    /// Waits for a token without taking it. Returns whether keys still start.
    fn wait_for_token(&self, control: &Control) -> bool {
        loop {
            match self.limiter.peek() {
                Ok(delay) if delay.is_zero() => return control.starts(),
                Ok(delay) => {
                    if !control.wait_until(SystemClock.now() + delay) {
                        return false;
                    }
                }
                Err(_) => unreachable!("a burst of at least one lets one token through"),
            }
        }
    }
}
