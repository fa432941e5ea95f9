//! Notifies callers when their group is committed.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// The result of writing a group; the error is the cause as text.
pub(crate) type CommitResult = Result<(), Arc<str>>;

/// The result of one commit, once known, and the tasks that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    result: OnceLock<CommitResult>,
    wakers: Mutex<Vec<Waker>>,
}

impl Commit {
    /// Returns a future of the result.
    pub(crate) fn wait(self: &Arc<Self>) -> CommitWait {
        CommitWait { commit: Arc::clone(self), index: None }
    }

    /// Sets the result and wakes all waiting tasks. Only the first result counts.
    pub(crate) fn complete(&self, result: CommitResult) {
        if self.result.set(result).is_ok() {
            let wakers = std::mem::take(&mut *self.lock());
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the result of a commit.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct CommitWait {
    commit: Arc<Commit>,
    /// Index of this task's waker.
    index: Option<usize>,
}

impl Future for CommitWait {
    type Output = CommitResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CommitResult> {
        let this = &mut *self;
        let mut wakers = this.commit.lock();
        // `complete` sets the result before it takes the wakers under this lock, so a
        // waker that is added here without a result is woken.
        if let Some(result) = this.commit.result.get() {
            return Poll::Ready(result.clone());
        }
        let index = *this.index.get_or_insert(wakers.len());
        if let Some(waker) = wakers.get_mut(index) {
            waker.clone_from(context.waker());
        } else {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicU32);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(wait: &mut CommitWait, count: &Arc<WakeCount>) -> Poll<CommitResult> {
        let waker = Waker::from(Arc::clone(count));
        Pin::new(wait).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn waiting_task_is_woken_once_through_its_latest_waker() {
        let (commit, early, late) =
            (Arc::new(Commit::default()), Arc::default(), Arc::default());
        let (mut one, mut other) = (commit.wait(), commit.wait());
        assert_eq!(poll(&mut one, &early), Poll::Pending);
        assert_eq!(poll(&mut other, &early), Poll::Pending);
        assert_eq!(poll(&mut one, &late), Poll::Pending);
        commit.complete(Ok(()));
        let counts = [&early, &late].map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1]);
        assert_eq!(poll(&mut one, &late), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut other, &early), Poll::Ready(Ok(())));
    }

    #[test]
    fn late_waiters_also_get_the_first_result() {
        let commit = Arc::new(Commit::default());
        commit.complete(Err("full".into()));
        commit.complete(Ok(()));
        let result = poll(&mut commit.wait(), &Arc::default());
        assert_eq!(result, Poll::Ready(Err("full".into())));
    }
}
