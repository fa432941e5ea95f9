//! A pool that runs, and the ways to end it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::config::Recording;
use super::registry::Registry;
use super::sleeper::Sleeper;
use super::source::Source;
use super::stopped::Stopped;
use super::time::{Deadline, Time};
use super::watcher::Watcher;
use super::worker::Worker;
use crate::Queue;

/// Starts a worker.
pub(super) type Start<Q> = Box<dyn Fn(Worker<Q>) -> io::Result<()> + Send + Sync>;

/// A pool whose workers run: from [`Pool::run`](super::Pool::run) and `Pool::run_async`.
///
/// Clones are the same pool. Dropping every handle stops nothing: the workers go on until
/// the queue is closed and no key is ready.
///
/// | to | call | the queue | waits for |
/// |---|---|---|---|
/// | finish what is ready and leave | [`drain`](Handle::drain) | closes | every ready key |
/// | finish what runs and leave | [`stop`](Handle::stop) | closes | the keys that run |
/// | finish what runs and pause | [`set_workers(0)`](Handle::set_workers), [`join`](Handle::join) | stays open | the keys that run |
///
/// Each of the waiting calls has a form for threads, whose name ends in `_blocking`. Both
/// forms work for both kinds of workers. A handler must not call them: it would wait for
/// itself.
pub struct Handle<K, Q = Queue<K>>
where
    Q: Source<Key = K>,
{
    pool: Arc<Running<K, Q>>,
}

/// What the handles of a pool share. Workers own no part of it, so that a queue whose
/// handles are all dropped closes.
pub(super) struct Running<K, Q: Source<Key = K>> {
    queue: Q,
    registry: Arc<Registry<K>>,
    time: Time,
    recorder: Recording,
    start: Start<Q>,
}

impl<K, Q: Source<Key = K>> Running<K, Q> {
    pub(super) fn new(
        queue: Q,
        time: Time,
        recorder: Recording,
        start: Start<Q>,
    ) -> Self {
        Self { queue, registry: Arc::new(Registry::new()), time, recorder, start }
    }

    pub(super) fn source(&self) -> &Q {
        &self.queue
    }
}

impl<K: Clone, Q: Source<Key = K>> Handle<K, Q> {
    pub(super) fn start(running: Running<K, Q>, workers: usize) -> io::Result<Self> {
        let handle = Self { pool: Arc::new(running) };
        let started = handle.set_workers(workers);
        started.inspect_err(|_| handle.pool.registry.dismiss())?;
        Ok(handle)
    }

    /// The queue that the pool works on.
    pub fn queue(&self) -> &Q {
        &self.pool.queue
    }

    /// Returns how many workers there are, once those that are too many have left.
    ///
    /// This is the number that was last set. It falls when workers leave because the queue is
    /// closed or their runtime has shut down, and is 0 after [`stop`](Self::stop).
    pub fn workers(&self) -> usize {
        self.pool.registry.wanted()
    }

    /// Changes how many workers there are, while they run.
    ///
    /// New workers start at once. If there are too many, idle workers leave at once and others
    /// after their run: no run is disturbed. With 0 the pool pauses, and the queue keeps what
    /// is added.
    ///
    /// Workers that start on a closed queue leave again once no key is ready. After
    /// [`stop`](Self::stop), or a [`drain`](Self::drain) that has returned, no worker starts.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread, or if the runtime of a pool of tasks has shut down. The
    /// pool then continues with the workers that it has.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use requeue::Queue;
    /// use requeue::pool::Pool;
    ///
    /// let queue = Queue::<u32>::new();
    /// let pool = Pool::new(queue.clone()).run(|_| Ok::<_, Infallible>(()))?;
    /// pool.set_workers(0)?;
    /// pool.join_blocking();
    /// queue.add(1);
    /// assert_eq!(queue.len(), 1, "the pool pauses");
    /// pool.set_workers(4)?;
    /// queue.wait_idle_blocking();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_workers(&self, workers: usize) -> io::Result<()> {
        let started = self.start_missing(workers);
        let workers = self.workers();
        self.pool.recorder.record(|recorder| recorder.workers(workers));
        started
    }

    /// Starts the workers that are missing now. One that leaves meanwhile is not replaced.
    fn start_missing(&self, workers: usize) -> io::Result<()> {
        let Running { queue, registry, start, .. } = &*self.pool;
        for registration in registry.resize(workers) {
            start(Worker::new(queue.get(), Arc::downgrade(&self.pool), registration))?;
        }
        Ok(())
    }

    /// Waits until all workers have left, because the queue was closed and ran empty, the
    /// pool was set to 0 workers, or its runtime has shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn join(&self) {
        Watcher::new(&self.pool.registry).until(Registry::is_empty).await;
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
    /// queue.add_all(["a", "b"]);
    /// queue.add_after("later", Duration::from_secs(3600));
    /// let pool = Pool::new(queue).run(|_: &&str| Ok::<_, String>(()))?;
    /// let stopped = pool.drain_blocking(Duration::from_secs(60));
    /// assert!(stopped.in_time());
    /// assert_eq!(stopped.left, ["later"]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "ShutDownWithDrain")]
    pub async fn drain(&self, within: Duration) -> Stopped<K> {
        self.pool.queue.close();
        self.pool.registry.hurry();
        self.wind_down(within).await
    }

    /// As [`drain`](Self::drain), blocking this thread.
    pub fn drain_blocking(&self, within: Duration) -> Stopped<K> {
        Sleeper::new().wait_for(self.drain(within))
    }

    /// Closes the queue and waits until the current runs have ended, for at most `within` on
    /// the pool's clock. Workers take no further key.
    ///
    /// At the deadline, the keys that still run are listed in [`Stopped::still_running`], and
    /// runs of tasks are cancelled. Threads cannot be cancelled: they leave after their run.
    /// If all runs end in time, this also waits, within the deadline, until a store has
    /// recorded how they ended. The process can then exit.
    ///
    /// Other pools on the same queue see it closed. To end one of several, use
    /// [`set_workers(0)`](Self::set_workers) and [`join`](Self::join).
    ///
    /// # Cancel safety
    ///
    /// As that of [`drain`](Self::drain). The workers leave even if the future is dropped.
    pub async fn stop(&self, within: Duration) -> Stopped<K> {
        // In this order: a closed queue still delivers its ready keys.
        self.pool.registry.dismiss();
        self.pool.queue.close();
        self.wind_down(within).await
    }

    /// As [`stop`](Self::stop), blocking this thread.
    pub fn stop_blocking(&self, within: Duration) -> Stopped<K> {
        Sleeper::new().wait_for(self.stop(within))
    }

    /// Waits for the workers, then collects the keys that were not finished.
    ///
    /// From the point where keys are collected there is no await: a future that is dropped
    /// before has taken no key from the queue and cancelled no run.
    async fn wind_down(&self, within: Duration) -> Stopped<K> {
        let Running { queue, registry, time, .. } = &*self.pool;
        let mut deadline = time.deadline(within);
        let left = Watcher::new(registry).until(Registry::is_empty);
        if before(&mut deadline, left).await {
            before(&mut deadline, queue.settled()).await;
        }
        registry.dismiss();
        // No worker takes another key once this has returned: invariant 2 of the slots.
        Watcher::new(registry).until(|registry| !registry.is_exchanging()).await;
        // In this order: a key whose run ends in between is in the queue by then.
        let still_running = registry.running();
        let left = queue.close_now();
        registry.cancel();
        Stopped { still_running, left }
    }
}

/// Waits for an event until `deadline`. Returns whether the event came first.
async fn before(deadline: &mut Deadline, event: impl Future<Output = ()>) -> bool {
    let mut event = pin!(event);
    poll_fn(|cx| match event.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => deadline.poll(cx).map(|()| false),
    })
    .await
}

impl<K, Q: Source<Key = K>> Clone for Handle<K, Q> {
    fn clone(&self) -> Self {
        Self { pool: Arc::clone(&self.pool) }
    }
}

impl<K, Q: Source<Key = K>> fmt::Debug for Handle<K, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("queue", &self.pool.queue)
            .field("workers", &self.pool.registry.wanted())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(requeue_loom, requeue_shuttle))))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::pool::Pool;

    /// Starts a pool on a system that refuses every thread after the first `limit`.
    fn start(
        queue: &Queue<u32>,
        workers: usize,
        limit: u64,
    ) -> (io::Result<Handle<u32>>, mpsc::Receiver<()>) {
        let (alive, gone) = mpsc::channel::<()>();
        let pool = Pool::<_, String>::new(queue.clone()).workers(workers);
        let pool = pool.start(|config| {
            Box::new(move |worker| {
                if worker.id() > limit {
                    return Err(io::Error::other("no more threads"));
                }
                let (config, alive) = (Arc::clone(&config), alive.clone());
                thread::spawn(move || {
                    let _alive = alive;
                    worker.work(&config, &|_| Ok(()));
                });
                Ok(())
            })
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
