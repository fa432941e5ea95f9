//! A count of running tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts tasks, and notifies when none is left.
#[derive(Debug)]
pub(crate) struct TaskCount {
    count: AtomicUsize,
    none_left: Arc<Notify>,
}

impl TaskCount {
    pub(crate) fn new(none_left: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { count: AtomicUsize::new(0), none_left })
    }

    /// Counts a task until the returned guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> CountedTask {
        // SeqCst, as in `Client::is_closed`: of a task that enters and then finds the
        // client open, and a caller that closes it and then reads this count, at least one
        // sees the other.
        self.count.fetch_add(1, Ordering::SeqCst);
        CountedTask(Arc::clone(self))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

/// A counted task.
#[derive(Debug)]
#[must_use = "the task is counted until this is dropped"]
pub(crate) struct CountedTask(Arc<TaskCount>);

impl Drop for CountedTask {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}
