//! A running pool, and the ways to end it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::PoolInner;
use super::source::Source;
use super::thread::Sleeper;
use super::time::Sleep;
use super::worker_set::{Registration, WorkerSet};

/// Starts a worker.
pub(super) type Start<Q> =
    Box<dyn Fn(&Arc<Running<Q>>, Registration) -> io::Result<()> + Send + Sync>;

/// A running pool; from [`Pool::spawn_threads`](super::Pool::spawn_threads) and
/// `Pool::spawn_tasks`.
///
/// Clones refer to the same pool. Dropping all handles does not stop the workers: they leave
/// when the queue is closed and no key is ready.
///
/// | to | call | the queue | waits for |
/// |---|---|---|---|
/// | process all ready keys and stop | [`drain`](Handle::drain) | closes | every ready key |
/// | finish the current runs and stop | [`stop`](Handle::stop) | closes | the current runs |
/// | finish the current runs and pause | [`set_workers(0)`](Handle::set_workers), then [`join`](Handle::join) | stays open | the current runs |
///
/// Each waiting call has a blocking form, whose name ends in `_blocking`. Both forms work for
/// threads and tasks. Do not call them from a handler, which would wait for itself.
pub struct Handle<Q: Source> {
    running: Arc<Running<Q>>,
}

/// What the handles of a pool share. Workers own no part of it, so that a queue whose
/// handles are all dropped closes.
///
/// No field mentions `Q::Key`: futures that hold a handle would then not be `Send` for keys
/// such as `&'static str`, because of rust-lang/rust#110338.
pub(super) struct Running<Q: Source> {
    pub(super) queue: Q,
    pub(super) pool: Arc<PoolInner>,
    pub(super) start: Start<Q>,
}

impl<Q: Source> Handle<Q> {
    pub(super) fn start(running: Running<Q>, workers: usize) -> io::Result<Self> {
        let handle = Self { running: Arc::new(running) };
        let started = handle.set_workers(workers);
        started.inspect_err(|_| handle.worker_set().shut_down())?;
        Ok(handle)
    }

    fn worker_set(&self) -> &Arc<WorkerSet> {
        &self.running.pool.worker_set
    }

    /// Returns the queue that the pool works on.
    pub fn queue(&self) -> &Q {
        &self.running.queue
    }

    /// Returns the configured number of workers.
    ///
    /// Surplus workers may still be running. The number falls when workers leave because the
    /// queue is closed or their runtime has shut down. It is 0 after [`stop`](Self::stop).
    pub fn workers(&self) -> usize {
        self.worker_set().wanted()
    }

    /// Changes the number of workers.
    ///
    /// New workers start at once. Surplus workers leave at once if they are idle, otherwise
    /// after their run. With 0 workers the pool pauses, and the queue keeps its keys.
    ///
    /// Workers that start on a closed queue leave again when no key is ready. No worker
    /// starts after [`stop`](Self::stop), or after [`drain`](Self::drain) has returned.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread, or the runtime of the tasks has shut down. The pool
    /// then continues with the workers that it has.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::Queue;
    /// use requeue::pool::Pool;
    ///
    /// let queue = Queue::<u32>::new();
    /// let pool = Pool::new(queue.clone()).spawn_threads(|_| ())?;
    /// pool.set_workers(0)?;
    /// pool.join_blocking();
    /// queue.add(1)?;
    /// assert_eq!(queue.len(), 1, "the pool pauses");
    /// pool.set_workers(4)?;
    /// queue.wait_idle_blocking();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_workers(&self, workers: usize) -> io::Result<()> {
        self.worker_set().resize(workers);
        let started = self.start_missing();
        if started.is_err() {
            self.worker_set().accept_current();
        }
        let workers = self.workers();
        self.running.pool.record(|recorder| recorder.workers(workers));
        started
    }

    fn start_missing(&self) -> io::Result<()> {
        while let Some(registration) = self.worker_set().register() {
            (self.running.start)(&self.running, registration)?;
        }
        Ok(())
    }

    /// Waits until all workers have left.
    ///
    /// They leave when the queue is closed and no key is ready, when the pool is set to 0
    /// workers, or when their runtime shuts down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn join(&self) {
        self.worker_set().until(WorkerSet::is_empty).await;
    }

    /// As [`join`](Self::join), blocking this thread.
    pub fn join_blocking(&self) {
        Sleeper::new().wait_for(self.join());
    }

    /// Closes the queue and waits until the workers have processed all ready keys, for at
    /// most `within` on the pool's clock.
    ///
    /// Keys that fail meanwhile are not retried. They are in [`Stopped::left`], as are delayed
    /// keys. At the deadline, workers take no further key and running tasks are cancelled, as
    /// by [`stop`](Self::stop).
    ///
    /// A closed handle of a queue on a store receives no more keys. There, this is the same
    /// as [`stop`](Self::stop), and ready keys stay in the store.
    ///
    /// # Cancel safety
    ///
    /// The queue closes with the first poll and stays closed. Dropping the future loses no
    /// key: call this, or [`stop`](Self::stop), once more.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::Queue;
    /// use requeue::pool::Pool;
    ///
    /// let queue = Queue::new();
    /// queue.add_all(["a", "b"])?;
    /// queue.add_after("later", Duration::from_secs(3600))?;
    /// let pool = Pool::new(queue).spawn_threads(|_| ())?;
    /// let stopped = pool.drain_blocking(Duration::from_secs(60));
    /// assert!(stopped.in_time());
    /// assert_eq!(stopped.left, ["later"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ShutDownWithDrain")]
    pub fn drain(
        &self,
        within: Duration,
    ) -> impl Future<Output = Stopped<Q::Key>> + Send {
        self.wind_down(within, || {
            self.running.queue.close();
            self.worker_set().wake_all();
        })
    }

    /// As [`drain`](Self::drain), blocking this thread.
    pub fn drain_blocking(&self, within: Duration) -> Stopped<Q::Key> {
        Sleeper::new().wait_for(self.drain(within))
    }

    /// Closes the queue and waits until the current runs have ended, for at most `within` on
    /// the pool's clock. Workers take no further key.
    ///
    /// At the deadline, the keys that are still running are listed in
    /// [`Stopped::still_running`], and the runs are cancelled: tasks are dropped and their
    /// keys released, without counting a failure. Threads cannot be interrupted; they leave
    /// after their run. If all runs end in time, this also waits, within the deadline, until
    /// a store has recorded how they ended. The process can then exit.
    ///
    /// Other pools on the same queue see it closed. To end one of several pools, use
    /// [`set_workers(0)`](Self::set_workers) and [`join`](Self::join).
    ///
    /// # Cancel safety
    ///
    /// As that of [`drain`](Self::drain). The workers leave even if the future is dropped.
    pub fn stop(&self, within: Duration) -> impl Future<Output = Stopped<Q::Key>> + Send {
        self.wind_down(within, || {
            // In this order: a closed queue still delivers its ready keys.
            self.worker_set().shut_down();
            self.running.queue.close();
        })
    }

    /// As [`stop`](Self::stop), blocking this thread.
    pub fn stop_blocking(&self, within: Duration) -> Stopped<Q::Key> {
        Sleeper::new().wait_for(self.stop(within))
    }

    /// Closes the queue, waits for the workers, and collects the keys that are not finished.
    ///
    /// There is no await after the keys are collected: dropping the future before that takes
    /// no key from the queue and cancels no run.
    async fn wind_down(&self, within: Duration, close: impl FnOnce()) -> Stopped<Q::Key> {
        close();
        let Running { queue, pool, .. } = &*self.running;
        let ended = async {
            self.join().await;
            queue.flush().await;
        };
        until_deadline(pool.time.sleep(within), ended).await;
        pool.worker_set.shut_down();
        // Before the keys are listed: the last worker may end its lease in between.
        let all_left = pool.worker_set.is_empty();
        let mut stopped = queue.close_now();
        pool.worker_set.cancel();
        if all_left {
            stopped.still_running.clear(); // held by others that share the queue
        }
        stopped
    }
}

/// Waits for `event`, at most until `deadline`.
async fn until_deadline(mut deadline: Sleep, event: impl Future<Output = ()>) {
    let mut event = pin!(event);
    poll_fn(|cx| match event.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => Pin::new(&mut deadline).poll(cx),
    })
    .await;
}

impl<Q: Source> Clone for Handle<Q> {
    fn clone(&self) -> Self {
        Self { running: Arc::clone(&self.running) }
    }
}

impl<Q: Source> fmt::Debug for Handle<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("queue", &self.running.queue)
            .field("workers", &self.workers())
            .finish_non_exhaustive()
    }
}

/// The keys that a stopped pool has not finished.
///
/// Each key that was in the queue, or leased from it, is in one of the two lists unless its
/// last run succeeded or the key is dead. Keep both lists to lose nothing. A key that was
/// added again during its run is in both.
///
/// A key in `still_running` may have finished since. If several calls stop a pool at the same
/// time, each key is in the result of at least one of them. A queue on a store keeps its keys
/// itself: there, `left` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped<K> {
    /// The keys that were leased at the deadline, also by other workers on the same queue.
    /// Runs on threads continue, tasks are cancelled. Empty if all runs of this pool ended in
    /// time.
    pub still_running: Vec<K>,
    /// The keys that were not delivered: ready keys, then keys that were added during their
    /// run, then delayed keys, which include keys to be retried.
    pub left: Vec<K>,
}

impl<K> Stopped<K> {
    /// Makes the value from its lists, for implementations of [`Source::close_now`].
    pub fn new(still_running: Vec<K>, left: Vec<K>) -> Self {
        Self { still_running, left }
    }

    /// Returns whether every run ended in time.
    pub fn in_time(&self) -> bool {
        self.still_running.is_empty()
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::Queue;
    use crate::pool::Pool;

    /// Starts a pool on a system that refuses every thread after the first `limit`.
    fn start(
        queue: &Queue<u32>,
        workers: usize,
        limit: u64,
    ) -> (io::Result<Handle<Queue<u32>>>, mpsc::Receiver<()>) {
        let (alive, gone) = mpsc::channel::<()>();
        let pool = Pool::new(queue.clone()).workers(workers);
        let pool = pool.start(move |worker| {
            if worker.id() > limit {
                return Err(io::Error::other("no more threads"));
            }
            let alive = alive.clone();
            thread::spawn(move || {
                let _alive = alive;
                worker.work(&|_| ());
            });
            Ok(())
        });
        (pool, gone)
    }

    #[test]
    fn pool_continues_with_the_threads_that_it_has() {
        let queue = Queue::new();
        let (pool, _gone) = start(&queue, 1, 3);
        let pool = pool.expect("one thread is allowed");
        let error = pool.set_workers(5).expect_err("only three are");
        assert_eq!(error.to_string(), "no more threads");
        assert_eq!(pool.workers(), 3);
        while queue.parked() < 3 {
            thread::yield_now();
        }
        assert!(pool.stop_blocking(Duration::MAX).in_time());
    }

    #[test]
    fn threads_of_a_pool_that_does_not_start_leave() {
        let queue = Queue::new();
        let (pool, gone) = start(&queue, 4, 2);
        assert!(pool.is_err());
        assert!(gone.recv().is_err(), "all threads have ended");
        assert_eq!((queue.parked(), queue.is_closed()), (0, false));
    }
}
