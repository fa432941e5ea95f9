//! A worker: its loop, and one run on a thread.

use std::fmt::{Debug, Display};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::outcome::{Failure, Outcome};
use super::roster::Seat;
use super::sleeper::Sleeper;
use super::source::{Source, Work};
use super::terms::Terms;
use super::verdict::{Ran, Verdict};

/// Someone who is to work: the place to sit, and the first key to wait for.
pub(super) struct Worker<Q: Source> {
    pub(super) seat: Seat<Q::Key>,
    pub(super) first: Q::Get,
}

/// Waits for a key. `None` if the worker is to leave: the queue is closed, or it is one
/// too many.
///
/// The worker is asked to leave before it takes a key, and once more after it has said
/// where to reach it, so that a recall in between is not missed. On the way out `get` is
/// dropped, which ends the lease that it may carry: invariant 3 of the roster.
pub(super) async fn next<K, L>(
    seat: &mut Seat<K>,
    mut get: impl Future<Output = Option<L>> + Unpin,
) -> Option<L> {
    poll_fn(|cx| {
        if seat.excuse() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(lease) = Pin::new(&mut get).poll(cx) {
            return Poll::Ready(lease);
        }
        seat.listen(cx.waker());
        if seat.excuse() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

impl<Q: Source> Worker<Q> {
    /// Works on this thread until there is nothing to do any more.
    pub(super) fn work<E, O>(
        self,
        terms: &Terms<Q::Key, E>,
        handler: &impl Fn(&Q::Key) -> Result<O, E>,
    ) where
        E: Display,
        O: Into<Outcome>,
    {
        let Self { mut seat, first: mut get } = self;
        let sleeper = Sleeper::new();
        while let Some(lease) = sleeper.wait_for(next(&mut seat, get)) {
            let verdict = run(&seat, &lease, terms, handler);
            get = lease.next(&verdict.conclusion());
        }
    }
}

fn run<K, E, O>(
    seat: &Seat<K>,
    lease: &impl Work<Key = K>,
    terms: &Terms<K, E>,
    handler: impl Fn(&K) -> Result<O, E>,
) -> Verdict<E>
where
    K: Clone + Debug,
    E: Display,
    O: Into<Outcome>,
{
    let run = terms.begin(seat, lease);
    let ran = match run.attempt(|| handler(lease.key()).map(Into::into)) {
        Ok(result) => result.into(),
        Err(panic) => Ran::Failed(Failure::from_panic(&*panic)),
    };
    terms.end(seat, lease, &run, ran)
}

impl<E> From<Result<Outcome, E>> for Ran<E> {
    fn from(result: Result<Outcome, E>) -> Self {
        match result {
            Ok(outcome) => Self::Ended(outcome),
            Err(error) => Self::Failed(Failure::Error(error)),
        }
    }
}
