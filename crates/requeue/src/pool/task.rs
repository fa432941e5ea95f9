//! A worker that is a task, and one run of a future that can be cancelled.

use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::config::Config;
use super::outcome::{Failure, Outcome};
use super::run::Run;
use super::slot::Slot;
use super::source::{Source, Work};
use super::time::Deadline;
use super::verdict::Ran;
use super::worker::Worker;
use crate::contain::contain;

/// Returns an error if `task` was dropped instead of started. tokio does that without
/// further notice once the runtime has shut down.
pub(super) fn check_started(mut task: JoinHandle<()>) -> io::Result<()> {
    if !task.is_finished() {
        return Ok(());
    }
    let polled = Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(Err(error)) if error.is_cancelled() => {
            Err(io::Error::other("the tokio runtime has shut down"))
        }
        Poll::Ready(_) | Poll::Pending => Ok(()),
    }
}

impl<Q: Source> Worker<Q> {
    /// Works in this task until the worker is to leave.
    pub(super) async fn work_async<E, O, F>(
        mut self,
        config: &Config<Q::Key, E>,
        handler: &impl Fn(Q::Key) -> F,
    ) where
        E: Display,
        O: Into<Outcome>,
        F: Future<Output = Result<O, E>>,
    {
        while let Some(lease) = self.next(config).await {
            let mut run = Run::begin(config, lease);
            let ran = match run.attempt(|lease| handler(lease.key().clone())) {
                Ok(future) => {
                    let timeout = config.timeout.map(|after| Timeout {
                        deadline: config.time.deadline(after),
                        after,
                    });
                    watch(self.slot(), &mut run, timeout, future).await
                }
                Err(panic) => Ran::Failed(panic),
            };
            self.proceed(run.finish(ran));
        }
    }
}

/// The end of the time that a run may take.
struct Timeout {
    deadline: Deadline,
    after: Duration,
}

impl Timeout {
    fn poll<E>(&mut self, cx: &mut Context<'_>) -> Poll<Ran<E>> {
        self.deadline.poll(cx).map(|()| Ran::Failed(Failure::TimedOut(self.after)))
    }
}

/// Polls `future` until it ends, panics, takes too long, is cancelled or loses its lease.
///
/// The future is dropped before this returns. Only then may the key go to another worker.
async fn watch<W: Work, E, O: Into<Outcome>>(
    slot: &Slot<W::Key>,
    run: &mut Run<'_, W, E>,
    mut timeout: Option<Timeout>,
    future: impl Future<Output = Result<O, E>>,
) -> Ran<E> {
    let mut future = pin!(Some(future));
    let ran = poll_fn(|cx| {
        slot.listen(cx.waker());
        if slot.is_cancelled() || is_lost(run.lease(), cx) {
            return Poll::Ready(Ran::Cancelled);
        }
        let work = future.as_mut().as_pin_mut().expect("it is dropped after this");
        if let Poll::Ready(ran) = step(run, work, cx) {
            return Poll::Ready(ran);
        }
        timeout.as_mut().map_or(Poll::Pending, |timeout| timeout.poll(cx))
    })
    .await;
    match run.attempt(|_| future.set(None)) {
        Ok(()) => ran,
        Err(panic) => {
            contain(|| drop(ran));
            Ran::Failed(panic)
        }
    }
}

/// Returns whether the lease is lost. One that panics when it is asked is not.
fn is_lost(lease: &mut impl Work, cx: &mut Context<'_>) -> bool {
    contain(|| lease.poll_lost(cx)).is_some_and(|poll| poll.is_ready())
}

fn step<W: Work, E, O: Into<Outcome>>(
    run: &mut Run<'_, W, E>,
    future: Pin<&mut impl Future<Output = Result<O, E>>>,
    cx: &mut Context<'_>,
) -> Poll<Ran<E>> {
    match run.attempt(|_| future.poll(cx).map(|result| result.map(Into::into))) {
        Ok(poll) => poll.map(|result| Ok(result).into()),
        Err(panic) => Poll::Ready(Ran::Failed(panic)),
    }
}
