//! What a pool of workers tells about itself.

use std::time::Duration;

/// Hears of the runs in one [pool](crate::pool).
///
/// Every method does nothing by default. They are called by the worker, before the key is
/// given back. A recorder is dropped when its pool is gone: its last worker has left, and
/// its handles are dropped.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// use requeue::Queue;
/// use requeue::metrics::{Ended, Metrics, PoolRecorder, Probe, Recorder};
/// use requeue::pool::Pool;
///
/// #[derive(Clone, Default)]
/// struct Failures(Arc<AtomicU64>);
///
/// impl Recorder for Failures {}
///
/// impl PoolRecorder for Failures {
///     fn ended(&self, how: Ended, _took: Duration) {
///         self.0.fetch_add(u64::from(how != Ended::Done), Ordering::Relaxed);
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
/// queue.add_all([1, 2, 3]);
/// let pool = Pool::new(queue)
///     .max_retries(0)
///     .metrics(failures.clone())
///     .run(|key: &u32| if *key == 2 { Err("two") } else { Ok(()) })?;
/// pool.drain_blocking(Duration::from_secs(10));
/// assert_eq!(failures.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait PoolRecorder: Send + Sync {
    /// There are to be this many workers from now on.
    fn workers(&self, workers: usize) {
        let _ = workers;
    }

    /// A worker began a run.
    fn started(&self) {}

    /// A run ended in this way, after this time.
    fn ended(&self, how: Ended, took: Duration) {
        let _ = (how, took);
    }

    /// A run that could not be cancelled took longer than its timeout. Called before
    /// [`ended`](Self::ended).
    fn overran(&self) {}

    /// A key failed for good. Called before [`ended`](Self::ended).
    fn dead(&self) {}
}

/// How a run in a pool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// It went well.
    Done,
    /// It went well, and the key comes again after a delay.
    After,
    /// The handler returned an error.
    Failed,
    /// The handler gave up.
    GaveUp,
    /// The handler panicked.
    Panicked,
    /// The run was cancelled because it took longer than its timeout.
    TimedOut,
    /// The run was cancelled because the pool was stopped.
    Cancelled,
}

/// Records nothing.
pub(super) struct NoRecorder;

impl PoolRecorder for NoRecorder {}
