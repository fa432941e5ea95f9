//! Workers in tasks of tokio, whose runs can be cancelled.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::task::JoinHandle;

use super::active_run::ActiveRun;
use super::handler::HandlerResult;
use super::outcome::Outcome;
use super::run::{Cancellation, Run};
use super::source::Source;
use super::trace::RunSpan;
use super::worker::Worker;
use super::worker_set::Listener;
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
    pub(super) async fn work_async<R: HandlerResult, F: Future<Output = R>>(
        mut self,
        handler: &impl Fn(Run<Q::Key>) -> F,
    ) {
        while let Some(lease) = self.next().await {
            let active = ActiveRun::begin(&self.pool, &self.callbacks, lease);
            let outcome = match active.span.attempt(|| handler(active.run())) {
                Ok(future) => {
                    let cancellation = active.cancellation(&mut self.listener);
                    execute(&active.span, cancellation, future).await
                }
                Err(panic) => Outcome::retried(panic),
            };
            let next = active.finish(outcome);
            self.proceed(next);
        }
    }
}

/// Polls the handler's future until it ends or the run is cancelled.
///
/// The future is dropped before this returns. Only then may the key go to another worker.
async fn execute<R: HandlerResult>(
    span: &RunSpan,
    mut cancellation: Cancellation<&mut Listener>,
    future: impl Future<Output = R>,
) -> Outcome {
    let mut future = pin!(Some(future));
    let outcome = poll_fn(|cx| {
        let handler = future.as_mut().as_pin_mut().expect("it is dropped after this");
        match span.attempt(|| handler.poll(cx).map(Outcome::of)) {
            Ok(Poll::Pending) => cancellation.poll(cx),
            Ok(ended) => ended,
            Err(panic) => Poll::Ready(Outcome::retried(panic)),
        }
    })
    .await;
    match span.attempt(|| future.set(None)) {
        Ok(()) => outcome,
        Err(panic) => {
            contain(|| drop(outcome));
            Outcome::retried(panic)
        }
    }
}
