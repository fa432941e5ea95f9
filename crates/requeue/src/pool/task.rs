//! A worker that is a task, and one run of a future that can be cancelled.

use std::fmt::{Debug, Display};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use super::outcome::{Failure, Outcome};
use super::roster::Seat;
use super::source::{Source, Work};
use super::terms::{Run, Terms};
use super::verdict::{Ran, Verdict};
use super::worker::{Worker, next};
use crate::Timer;

impl<Q: Source> Worker<Q> {
    /// Works in this task until there is nothing to do any more.
    pub(super) async fn work_async<E, O, F>(
        self,
        terms: &Terms<Q::Key, E>,
        handler: &impl Fn(Q::Key) -> F,
    ) where
        E: Display,
        O: Into<Outcome>,
        F: Future<Output = Result<O, E>>,
    {
        let Self { mut seat, first: mut get } = self;
        while let Some(mut lease) = next(&mut seat, get).await {
            let verdict = run(&seat, &mut lease, terms, handler).await;
            get = lease.next(&verdict.conclusion());
        }
    }
}

async fn run<K, E, O, F>(
    seat: &Seat<K>,
    lease: &mut impl Work<Key = K>,
    terms: &Terms<K, E>,
    handler: impl Fn(K) -> F,
) -> Verdict<E>
where
    K: Clone + Debug,
    E: Display,
    O: Into<Outcome>,
    F: Future<Output = Result<O, E>>,
{
    let run = terms.begin(seat, lease);
    let alarm = terms.deadline(&run);
    let alarm =
        alarm.map(|(at, timeout)| Alarm { timer: terms.clock.timer(at), timeout });
    let key = lease.key().clone();
    let future = async { handler(key).await.map(Into::into) };
    let ran = watch(seat, lease, &run, alarm, future).await;
    terms.end(seat, lease, &run, ran)
}

/// When a run has taken too long.
struct Alarm {
    timer: Timer,
    timeout: Duration,
}

/// Polls `future` until it ends, panics, takes too long, is cancelled or has lost its key.
/// When this returns, the future is gone: only then may the key go to another worker.
async fn watch<K, E>(
    seat: &Seat<K>,
    lease: &mut impl Work,
    run: &Run,
    mut alarm: Option<Alarm>,
    future: impl Future<Output = Result<Outcome, E>>,
) -> Ran<E> {
    let mut future = pin!(Some(future));
    let ran = poll_fn(|cx| {
        seat.listen(cx.waker());
        if seat.is_cancelled() || lease.poll_lost(cx).is_ready() {
            return Poll::Ready(Ran::Cancelled);
        }
        let work = future.as_mut().as_pin_mut().expect("it is dropped after this");
        if let Poll::Ready(ran) = step(run, work, cx) {
            return Poll::Ready(ran);
        }
        alarm.as_mut().map_or(Poll::Pending, |alarm| alarm.poll(cx))
    })
    .await;
    let dropped = run.attempt(|| future.set(None));
    dropped.map_or_else(|panic| Ran::Failed(Failure::from_panic(&*panic)), |()| ran)
}

fn step<E>(
    run: &Run,
    future: Pin<&mut impl Future<Output = Result<Outcome, E>>>,
    cx: &mut Context<'_>,
) -> Poll<Ran<E>> {
    match run.attempt(|| future.poll(cx)) {
        Ok(poll) => poll.map(Ran::from),
        Err(panic) => Poll::Ready(Ran::Failed(Failure::from_panic(&*panic))),
    }
}

impl Alarm {
    fn poll<E>(&mut self, cx: &mut Context<'_>) -> Poll<Ran<E>> {
        let timed_out = Ran::Failed(Failure::TimedOut(self.timeout));
        Pin::new(&mut self.timer).poll(cx).map(|()| timed_out)
    }
}
