//! How waiters of a limiter are woken.

use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;
use std::thread::{self, Thread};

/// How to wake a waiter.
#[derive(Debug)]
pub(super) enum Wake {
    Thread(Thread),
    Task(Waker),
}

impl Wake {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

/// Waiters to wake, and wakers to drop, as soon as the lock of their limiter is free.
///
/// A waker is foreign code: to wake, clone or drop one may call the limiter again.
#[derive(Debug, Default)]
#[must_use = "a waiter that is not woken may sleep forever"]
pub(super) struct Wakes {
    due: Vec<Wake>,
    unneeded: Vec<Wake>,
}

impl Wakes {
    pub(super) fn push(&mut self, wake: Option<Wake>) {
        self.due.extend(wake);
    }

    /// Keeps a waker that is no longer needed, to drop it without the lock.
    pub(super) fn discard(&mut self, wake: Option<Wake>) {
        self.unneeded.extend(wake);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.due.append(&mut other.due);
        self.unneeded.append(&mut other.unneeded);
    }

    /// Wakes all, even if a waker panics. The first panic then continues.
    pub(super) fn wake(self) {
        let mut panicked = None;
        let calls = self.due.into_iter().map(|wake| (wake, true));
        for (wake, due) in
            calls.chain(self.unneeded.into_iter().map(|wake| (wake, false)))
        {
            let call = || if due { wake.wake() } else { drop(wake) };
            let result = panic::catch_unwind(AssertUnwindSafe(call));
            panicked = panicked.or(result.err());
        }
        // A second panic while the first unwinds would end the process.
        if let Some(panic) = panicked.filter(|_| !thread::panicking()) {
            panic::resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Panics if it is the second to be woken.
    struct Counter(AtomicU32);

    impl std::task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 1, "the second");
        }
    }

    #[test]
    fn a_waker_that_panics_does_not_keep_others_from_being_woken() {
        let counter = Arc::new(Counter(AtomicU32::new(0)));
        let mut wakes = Wakes::default();
        for _ in 0..3 {
            wakes.push(Some(Wake::Task(Waker::from(Arc::clone(&counter)))));
        }
        wakes.discard(Some(Wake::Task(Waker::from(Arc::clone(&counter)))));
        let result = panic::catch_unwind(AssertUnwindSafe(|| wakes.wake()));
        assert!(result.is_err(), "the panic is not hidden");
        assert_eq!(counter.0.load(Ordering::Relaxed), 3);
        assert_eq!(Arc::strong_count(&counter), 1, "all wakers are gone");
    }

    #[test]
    fn threads_are_unparked() {
        let mut wakes = Wakes::default();
        wakes.push(Some(Wake::Thread(thread::current())));
        wakes.wake();
        thread::park();
    }
}
