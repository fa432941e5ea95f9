//! Where workers wait before they start, and the reader before it reads on.

use std::sync::{Condvar, Mutex, PoisonError};

use requeue::rate::{Limit, Limiter};
use requeue::{Clock, Queue, SystemClock};
use requeue_store::Error;

use crate::input::Key;
use crate::signals::Control;
use crate::supply::{Held, Supply};

/// Lets workers start no more often than a limit says.
///
/// A worker takes its token and its key together, with the gate closed behind it. If it
/// took the key first, the key would wait with the worker, where it cannot be merged; if
/// it took the token first, each idle worker would keep one, and they would start at once.
#[derive(Debug)]
pub(crate) struct Gate {
    limiter: Limiter,
    turn: Mutex<()>,
}

impl Gate {
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        Self {
            limiter: Limiter::new(Limit::per_second(per_second), burst),
            turn: Mutex::new(()),
        }
    }

    /// Waits for a token and a key; `None` if nothing more is started.
    pub(crate) fn pass(
        &self,
        supply: &Supply,
        control: &Control,
    ) -> Result<Option<Held>, Error> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = self.wait_for_token(control);
        let held = if starts { supply.take()? } else { None };
        if held.is_some() {
            // It is there: only the holder of the turn takes tokens.
            let taken = self.limiter.allow();
            debug_assert!(taken, "the token that was waited for is there");
        }
        drop(turn);
        Ok(held)
    }

    /// Waits until there is a token, without taking it: whether keys still start.
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

/// Keeps the reader from running ahead of the workers.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) max: usize,
    waiting: Mutex<()>,
    freed: Condvar,
}

impl Room {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, waiting: Mutex::new(()), freed: Condvar::new() }
    }

    /// Waits until fewer keys than the maximum wait, or the queue is closed.
    pub(crate) fn wait(&self, queue: &Queue<Key>) {
        let full = |(): &mut ()| {
            let counts = queue.counts();
            counts.ready + counts.delayed >= self.max && !queue.is_closed()
        };
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.freed.wait_while(waiting, full));
    }

    /// Says that a key has been taken, or that the queue is closed.
    pub(crate) fn freed(&self) {
        // Whoever found the queue full is waiting by the time this lock is free.
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.freed.notify_all();
    }
}
