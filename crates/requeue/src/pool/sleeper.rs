//! A thread that waits for futures: just enough of an executor for workers on threads.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::thread::{self, Thread};

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
            // An unpark that came since the poll is remembered: this returns at once.
            thread::park();
        }
    }
}
