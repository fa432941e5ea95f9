//! A pool that runs, and the ways to end it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::roster::Roster;
use super::sleeper::Sleeper;
use super::source::Source;
use super::worker::Worker;
use crate::metrics::PoolRecorder;
use crate::{Clock, Queue, Timer};

/// Starts a worker.
pub(super) type Hire<Q> = Box<dyn Fn(Worker<Q>) -> io::Result<()> + Send + Sync>;

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

/// What the handles of a pool share. Workers hold no part of it, so that a queue whose
/// handles are all dropped closes.
pub(super) struct Running<K, Q: Source<Key = K>> {
    pub(super) queue: Q,
    pub(super) roster: Arc<Roster<K>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) recorder: Option<Arc<dyn PoolRecorder>>,
    pub(super) hire: Hire<Q>,
}

/// What a pool that was stopped leaves behind.
///
/// To lose nothing, keep both lists: a key that was running when it was added once more
/// is in both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped<K> {
    /// The keys whose run had not ended at the deadline. Runs on threads go on; those of
    /// tasks are cancelled. Empty if all ended in time.
    pub still_running: Vec<K>,
    /// The keys that no worker was given: what was still ready, then what was added while
    /// it was running, then what was delayed.
    pub left: Vec<K>,
}

impl<K> Stopped<K> {
    /// Whether every run had ended in time.
    pub fn in_time(&self) -> bool {
        self.still_running.is_empty()
    }
}

impl<K: Clone, Q: Source<Key = K>> Handle<K, Q> {
    pub(super) fn start(running: Running<K, Q>, workers: usize) -> io::Result<Self> {
        let handle = Self { pool: Arc::new(running) };
        handle.set_workers(workers).inspect_err(|_| handle.pool.roster.want(0))?;
        Ok(handle)
    }

    /// The queue that the pool works on.
    pub fn queue(&self) -> &Q {
        &self.pool.queue
    }

    /// How many workers there are to be, as last set.
    pub fn workers(&self) -> usize {
        self.pool.roster.wanted()
    }

    /// Changes how many workers there are, while they run.
    ///
    /// New workers start at once. Of those that are too many, the ones without a key leave
    /// at once, and others when their run has ended: no run is disturbed. With 0 the pool
    /// pauses, and the queue keeps what is added.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread. The pool then goes on with the workers that it has.
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
    /// assert_eq!(queue.len(), 1, "nobody takes it");
    /// pool.set_workers(4)?;
    /// queue.wait_idle_blocking();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_workers(&self, workers: usize) -> io::Result<()> {
        let Running { queue, roster, hire, .. } = &*self.pool;
        roster.want(workers);
        let mut hired = Ok(());
        while let Some(seat) = roster.vacancy() {
            hired = hire(Worker { seat, first: queue.get() });
            if hired.is_err() {
                break;
            }
        }
        let wanted = if hired.is_ok() { roster.wanted() } else { roster.make_do() };
        if let Some(recorder) = &self.pool.recorder {
            recorder.workers(wanted);
        }
        hired
    }

    /// Waits until no worker is left: the queue was closed and ran empty, or the pool was
    /// set to 0 workers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn join(&self) {
        poll_fn(|cx| self.pool.roster.poll_left(cx)).await;
    }

    /// As [`join`](Self::join), blocking this thread.
    pub fn join_blocking(&self) {
        Sleeper::new().wait_for(self.join());
    }

    /// Closes the queue and waits until the workers have finished all that is ready, for
    /// at most `within` on the pool's clock.
    ///
    /// Keys that fail meanwhile are not retried: they are among those that are left, as
    /// are delayed ones. When the time is over, this does what [`stop`](Self::stop) does
    /// when its time is over.
    ///
    /// A queue on a store gives nothing more to a handle that is closed: there this is as
    /// [`stop`](Self::stop), and what is ready stays in the store for others.
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
        self.wind_down(within).await
    }

    /// As [`drain`](Self::drain), blocking this thread.
    pub fn drain_blocking(&self, within: Duration) -> Stopped<K> {
        Sleeper::new().wait_for(self.drain(within))
    }

    /// Closes the queue and waits for the runs that are under way, for at most `within` on
    /// the pool's clock. Workers take no further key.
    ///
    /// When the time is over, the keys that still run are named, and their runs cancelled
    /// if they are tasks. Threads cannot be cancelled: they leave after their run. If there
    /// is time left, what the workers said is awaited to be where the keys are kept, so that
    /// a process may end after this.
    ///
    /// Other pools on the same queue see it closed. To end one of several, use
    /// [`set_workers(0)`](Self::set_workers) and [`join`](Self::join).
    ///
    /// # Cancel safety
    ///
    /// As that of [`drain`](Self::drain).
    pub async fn stop(&self, within: Duration) -> Stopped<K> {
        // In this order: on a closed queue a worker would be given what is ready.
        self.pool.roster.want(0);
        self.pool.queue.close();
        self.wind_down(within).await
    }

    /// As [`stop`](Self::stop), blocking this thread.
    pub fn stop_blocking(&self, within: Duration) -> Stopped<K> {
        Sleeper::new().wait_for(self.stop(within))
    }

    /// Keys that are retried on a closed queue are handed back with the rest, so the rest
    /// is taken last.
    async fn wind_down(&self, within: Duration) -> Stopped<K> {
        let Running { queue, roster, clock, .. } = &*self.pool;
        let deadline = clock.now().checked_add(within);
        let mut timer: Option<Timer> = deadline.map(|moment| clock.timer(moment));
        let in_time = before(&mut timer, |cx| roster.poll_left(cx)).await;
        let still_running = if in_time { Vec::new() } else { roster.dismiss() };
        let left = queue.close_now();
        if in_time {
            let mut settled = queue.settled();
            before(&mut timer, |cx| settled.as_mut().poll(cx)).await;
        }
        Stopped { still_running, left }
    }
}

/// Waits for something until a timer rings, if there is one: whether it came before.
async fn before(
    timer: &mut Option<Timer>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>,
) -> bool {
    poll_fn(|cx| {
        if poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let timer = timer.as_mut().map(Pin::new);
        timer.map_or(Poll::Pending, |timer| timer.poll(cx).map(|()| false))
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
            .field("workers", &self.pool.roster.wanted())
            .finish_non_exhaustive()
    }
}
