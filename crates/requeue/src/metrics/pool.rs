//! Metrics of pools.

use std::time::Duration;

/// Receives the events of one [pool](crate::pool).
///
/// Every method does nothing by default. Workers call them before the lease ends. A recorder
/// is dropped after the last worker has left and all handles of its pool are dropped.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// use requeue::Queue;
/// use requeue::metrics::{Metrics, PoolRecorder, Probe, Recorder, RunResult};
/// use requeue::pool::Pool;
///
/// #[derive(Clone, Default)]
/// struct Failures(Arc<AtomicU64>);
///
/// impl Recorder for Failures {}
///
/// impl PoolRecorder for Failures {
///     fn ended(&self, result: RunResult, _took: Duration) {
///         self.0.fetch_add(u64::from(result == RunResult::Failed), Ordering::Relaxed);
///     }
/// }
///
/// impl Metrics for Failures {
///     fn queue(&self, _name: &str, _probe: Probe) -> Box<dyn Recorder> {
///         Box::new(self.clone())
///     }
///
///     fn pool(&self, _name: &str) -> Box<dyn PoolRecorder> {
///         Box::new(self.clone())
///     }
/// }
///
/// let failures = Failures::default();
/// let queue = Queue::new();
/// queue.add_all([1, 2, 3])?;
/// let pool = Pool::new(queue)
///     .max_retries(0)
///     .metrics(failures.clone())
///     .spawn_threads(|run| if *run.key() == 2 { Err("two") } else { Ok(()) })?;
/// pool.drain_blocking(Duration::from_secs(10));
/// assert_eq!(failures.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PoolRecorder: Send + Sync {
    /// The number of workers was set.
    fn workers(&self, workers: usize) {
        let _ = workers;
    }

    /// A run began.
    fn started(&self) {}

    /// A run ended after this time.
    fn ended(&self, result: RunResult, took: Duration) {
        let _ = (result, took);
    }

    /// A run on a thread exceeded its timeout. Called before [`ended`](Self::ended).
    fn overran(&self) {}

    /// A key is dead. Called before [`ended`](Self::ended).
    fn dead(&self) {}
}

/// How a run of a pool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunResult {
    /// The run succeeded.
    Succeeded,
    /// The run succeeded, and the key runs again after a delay.
    Requeued,
    /// The handler returned an error, or asked for a retry.
    Failed,
    /// The handler panicked.
    Panicked,
    /// The run was cancelled because it exceeded its timeout.
    TimedOut,
    /// The handler gave up: the failure is permanent.
    GaveUp,
    /// The key was not processed. The run was cancelled because the pool stopped or the lease
    /// was lost, or the handler released the key.
    Released,
}

/// Records nothing.
pub(super) struct NoRecorder;

impl PoolRecorder for NoRecorder {}
