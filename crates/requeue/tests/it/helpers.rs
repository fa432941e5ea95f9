//! Helpers that many tests share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use requeue::testing::FakeClock;
use requeue::{Builder, Lease, Queue};

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A queue on a fake clock.
pub(crate) fn timed<K>() -> (Queue<K>, FakeClock) {
    timed_with(Queue::builder())
}

pub(crate) fn timed_with<K>(builder: Builder<K>) -> (Queue<K>, FakeClock) {
    let clock = FakeClock::new();
    (builder.clock(clock.clone()).build(), clock)
}

/// Delivers and finishes every ready key. Returns them in order.
pub(crate) fn take_all<K: Clone>(queue: &Queue<K>) -> Vec<K> {
    std::iter::from_fn(|| queue.try_get().ok().map(finished)).collect()
}

/// Ends a lease and returns its key.
pub(crate) fn finished<K: Clone>(lease: Lease<K>) -> K {
    let key = lease.key().clone();
    lease.done();
    key
}

/// Waits until this many getters are parked. From then on they miss no wake-up.
pub(crate) fn wait_for_parked<K>(queue: &Queue<K>, getters: usize) {
    while queue.parked() < getters {
        std::thread::yield_now();
    }
}

/// Counts how often a task is woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that the test polls by hand.
pub(crate) struct Task<F> {
    future: F,
    wakes: Arc<Wakes>,
}

impl<F: Future + Unpin> Task<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future, wakes: Arc::default() }
    }

    /// A task that was polled once and waits.
    #[track_caller]
    pub(crate) fn parked(future: F) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_pending(), "nothing to wait for");
        task
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    #[track_caller]
    pub(crate) fn output(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future is still waiting"),
        }
    }

    pub(crate) fn wakes(&self) -> usize {
        self.wakes.count()
    }
}
