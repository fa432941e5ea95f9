//! Workers on threads, and a thread that waits for futures.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::active_run::ActiveRun;
use super::handler::HandlerResult;
use super::outcome::Outcome;
use super::run::Run;
use super::source::{Source, Work};
use super::worker::Worker;
use crate::contain::contain;
use crate::sync::thread::{self, Thread};

impl<Q: Source> Worker<Q> {
    /// Works on this thread until the worker is to leave.
    pub(super) fn work<R: HandlerResult>(mut self, handler: &impl Fn(&Run<Q::Key>) -> R) {
        let sleeper = Sleeper::new();
        while let Some(lease) = sleeper.wait_for(self.next()) {
            let active = ActiveRun::begin(&self.pool, &self.callbacks, lease);
            let outcome = call(&active, handler);
            let next = active.finish(outcome);
            self.proceed(next);
        }
    }
}

fn call<W: Work, R: HandlerResult>(
    active: &ActiveRun<'_, W>,
    handler: &impl Fn(&Run<W::Key>) -> R,
) -> Outcome {
    let run = match active.span.attempt(|| active.run()) {
        Ok(run) => run,
        Err(panic) => return Outcome::retried(panic),
    };
    let outcome = active.span.attempt(|| Outcome::of(handler(&run)));
    contain(|| drop(run));
    outcome.unwrap_or_else(Outcome::retried)
}

/// Waits for futures on the thread that made it.
pub(super) struct Sleeper {
    waker: Waker,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Sleeper {
    pub(super) fn new() -> Self {
        Self { waker: Waker::from(Arc::new(Unpark(thread::current()))) }
    }

    pub(super) fn wait_for<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(&self.waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            // Returns at once if the thread was unparked since the poll.
            thread::park();
        }
    }
}
