//! Limits the rate at which commands start.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    tokens: Tokens,
    turn: Mutex<()>,
}

#[derive(Debug)]
enum Tokens {
    /// Of this process.
    Own(Limiter),
    /// Of all workers on the store. A process holds at most one in reserve.
    Shared(requeue_store::Rate),
}

impl StartLimiter {
    /// Creates a limiter for this process.
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        let limiter = Limiter::new(Limit::per_second(per_second), burst);
        Self { tokens: Tokens::Own(limiter), turn: Mutex::new(()) }
    }

    /// Creates a limiter for all workers on the store.
    pub(crate) fn shared(rate: requeue_store::Rate) -> Self {
        Self { tokens: Tokens::Shared(rate), turn: Mutex::new(()) }
    }

    /// Waits for a token and a key. Returns `None` if no more keys start.
    pub(crate) fn get(
        &self,
        queue: &RunQueue,
        control: &Control,
    ) -> Result<Option<RunLease>, Error> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = match &self.tokens {
            Tokens::Own(limiter) => wait_for_token(limiter, control),
            Tokens::Shared(rate) => match queue.store() {
                Some(store) => {
                    store.take_start(*rate)?.is_some_and(|after| wait(after, control))
                }
                None => unreachable!("a shared rate needs a store"),
            },
        };
        let lease = if starts { queue.get()? } else { None };
        if let (Tokens::Own(limiter), Some(_)) = (&self.tokens, &lease) {
            let taken = limiter.allow();
            debug_assert!(taken, "only the worker whose turn it is takes tokens");
        }
        drop(turn);
        Ok(lease)
    }
}

/// Waits for a token without taking it. Returns whether keys still start.
fn wait_for_token(limiter: &Limiter, control: &Control) -> bool {
    loop {
        match limiter.peek() {
            Ok(delay) if delay.is_zero() => return control.starts(),
            Ok(delay) => {
                if !wait(delay, control) {
                    return false;
                }
            }
            Err(_) => unreachable!("a burst of at least one lets one token through"),
        }
    }
}

/// Waits unless no more keys start. Returns whether keys still start.
fn wait(delay: Duration, control: &Control) -> bool {
    control.wait_until(SystemClock.now() + delay)
}
