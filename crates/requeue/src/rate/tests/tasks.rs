//! A small executor that polls a task only after it was woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A boxed future of a test.
pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Task<'a, T> {
    id: u64,
    future: Boxed<'a, T>,
    woken: Arc<Flag>,
}

/// Tasks in the order in which they were spawned.
pub(super) struct Tasks<'a, T> {
    tasks: Vec<Task<'a, T>>,
    spawned: u64,
}

impl<'a, T> Tasks<'a, T> {
    pub(super) fn new() -> Self {
        Self { tasks: Vec::new(), spawned: 0 }
    }

    /// Adds a task that is polled by the next [`run`](Self::run). Returns its number.
    pub(super) fn spawn(&mut self, future: impl Future<Output = T> + 'a) -> u64 {
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let id = self.spawned;
        self.spawned += 1;
        self.tasks.push(Task { id, future: Box::pin(future), woken });
        id
    }

    /// Drops a task. Returns whether it was still running.
    pub(super) fn cancel(&mut self, id: u64) -> bool {
        let place = self.tasks.iter().position(|task| task.id == id);
        place.map(|place| drop(self.tasks.remove(place))).is_some()
    }

    /// Drops the task at index `place` modulo the number of tasks.
    pub(super) fn cancel_at(&mut self, place: usize) {
        if !self.tasks.is_empty() {
            drop(self.tasks.remove(place % self.tasks.len()));
        }
    }

    /// Polls woken tasks until none is left. Returns the finished ones with their output.
    pub(super) fn run(&mut self) -> Vec<(u64, T)> {
        let mut finished = Vec::new();
        while self.tasks.iter().any(|task| task.woken.0.load(Ordering::Relaxed)) {
            self.tasks.retain_mut(|task| {
                if !task.woken.0.swap(false, Ordering::Relaxed) {
                    return true;
                }
                let waker = Waker::from(Arc::clone(&task.woken));
                match task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(output) => finished.push((task.id, output)),
                    Poll::Pending => return true,
                }
                false
            });
        }
        finished
    }
}
