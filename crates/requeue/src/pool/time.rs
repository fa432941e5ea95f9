//! The pool's clock, used in a way that its panics cost neither a worker nor a deadline.
//!
//! A clock is user code. Where it panics, real time takes its place.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::contain::contain;
use crate::{Clock, Timer};

/// The clock of one pool.
#[derive(Clone)]
pub(super) struct Time(Arc<dyn Clock>);

impl Time {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }

    /// Returns the present moment, or `None` if the clock panics.
    pub(super) fn now(&self) -> Option<Instant> {
        contain(|| self.0.now())
    }

    /// Returns how much time has passed since `moment`; zero if the clock panics.
    pub(super) fn since(&self, moment: Instant) -> Duration {
        let passed = self.now().map(|now| now.saturating_duration_since(moment));
        passed.unwrap_or_default()
    }

    /// Returns a deadline that ends after `delay`.
    pub(super) fn deadline(&self, delay: Duration) -> Deadline {
        let timer = self.now().map_or(Some(Timer::after(delay)), |now| {
            let moment = now.checked_add(delay)?;
            Some(contain(|| self.0.timer(moment)).unwrap_or_else(|| Timer::after(delay)))
        });
        Deadline { state: timer.map_or(State::Never, State::Waiting), delay }
    }
}

/// A moment to wait for.
pub(super) struct Deadline {
    state: State,
    /// Used if the timer panics.
    delay: Duration,
}

enum State {
    /// The moment is beyond what an [`Instant`] can hold.
    Never,
    Waiting(Timer),
    Reached,
}

impl Deadline {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match &mut self.state {
            State::Never => return Poll::Pending,
            State::Waiting(timer) => timer,
            State::Reached => return Poll::Ready(()),
        };
        let polled = contain(|| Pin::new(timer).poll(cx));
        if polled == Some(Poll::Pending) {
            return Poll::Pending;
        }
        let panicked = polled.is_none();
        let next = if panicked { self.in_real_time() } else { State::Reached };
        self.replace(next);
        if panicked { self.poll(cx) } else { Poll::Ready(()) }
    }

    fn in_real_time(&self) -> State {
        State::Waiting(Timer::after(self.delay))
    }

    fn replace(&mut self, state: State) {
        let before = std::mem::replace(&mut self.state, state);
        contain(|| drop(before));
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.replace(State::Reached);
    }
}
