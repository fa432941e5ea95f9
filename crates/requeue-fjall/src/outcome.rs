//! How a group came out, for all who wait to hear it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// How a group came out: what went wrong, if anything did.
pub(crate) type Outcome = Result<(), Arc<str>>;

/// An outcome that is still to come. Who waits is woken once, with all others.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    outcome: OnceLock<Outcome>,
    waiting: Mutex<Vec<Waker>>,
}

impl Pending {
    /// A wait for it.
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        Ticket { pending: Arc::clone(self), place: None }
    }

    /// Tells those who wait, and those who will. Only the first outcome counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        if self.outcome.set(outcome).is_ok() {
            let waiting = std::mem::take(&mut *self.lock());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wait for an outcome.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Ticket {
    pending: Arc<Pending>,
    /// Where among those who wait it is.
    place: Option<usize>,
}

impl Future for Ticket {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let this = &mut *self;
        let mut waiting = this.pending.lock();
        // The outcome is set before those who wait are taken under this lock: who finds
        // none is among them.
        if let Some(outcome) = this.pending.outcome.get() {
            return Poll::Ready(outcome.clone());
        }
        let place = *this.place.get_or_insert(waiting.len());
        if let Some(waker) = waiting.get_mut(place) {
            waker.clone_from(context.waker());
        } else {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Calls(AtomicU32);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(ticket: &mut Ticket, calls: &Arc<Calls>) -> Poll<Outcome> {
        let waker = Waker::from(Arc::clone(calls));
        Pin::new(ticket).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn who_waits_is_woken_once_and_by_the_last_waker_only() {
        let (pending, early, late) =
            (Arc::new(Pending::default()), Arc::default(), Arc::default());
        let (mut one, mut other) = (pending.ticket(), pending.ticket());
        assert_eq!(poll(&mut one, &early), Poll::Pending);
        assert_eq!(poll(&mut other, &early), Poll::Pending);
        assert_eq!(poll(&mut one, &late), Poll::Pending);
        pending.end(Ok(()));
        let counts = [&early, &late].map(|calls| calls.0.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1]);
        assert_eq!(poll(&mut one, &late), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut other, &early), Poll::Ready(Ok(())));
    }

    #[test]
    fn only_the_first_outcome_counts_also_for_those_who_come_later() {
        let pending = Arc::new(Pending::default());
        pending.end(Err("full".into()));
        pending.end(Ok(()));
        let outcome = poll(&mut pending.ticket(), &Arc::default());
        assert_eq!(outcome, Poll::Ready(Err("full".into())));
    }
}
