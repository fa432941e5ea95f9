//! Workers that run a handler for each key of a queue.
//!
//! A [`Pool`] runs workers on threads or in tasks. Each worker gets a key, calls the handler,
//! and ends the lease depending on what the handler [returns](HandlerResult). A run that
//! fails or panics is retried by the queue's [retry policy](crate::retry).
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::pool::Pool;
//!
//! let queue = Queue::<String>::new();
//! let pool = Pool::new(queue.clone())
//!     .workers(4)
//!     .max_retries(5)
//!     .on_dead(|key, failure| println!("{key}: {failure}"))
//!     .spawn_threads(|run| if run.is_empty() { Err("no name") } else { Ok(()) })?;
//! queue.add("web".to_owned())?;
//! let stopped = pool.drain_blocking(Duration::from_secs(10));
//! assert!(stopped.in_time());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod active_run;
mod failure;
mod handle;
mod handler;
mod outcome;
mod run;
#[cfg(all(test, requeue_shuttle))]
mod shuttle_tests;
mod source;
#[cfg(feature = "tokio")]
mod task;
mod thread;
mod time;
mod trace;
mod worker;
mod worker_set;

use std::fmt::{self, Debug};
#[cfg(feature = "tokio")]
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::failure::Failure;
pub use self::handle::{Handle, Stopped};
pub use self::handler::{Failed, HandlerResult};
pub use self::run::Run;
pub use self::source::{Expiry, Source, Work};

use self::handle::{Running, Start};
use self::time::Time;
use self::worker::Worker;
use self::worker_set::WorkerSet;
use crate::contain::contain;
use crate::metrics::{Metrics, PoolRecorder};
use crate::{Clock, SystemClock};

/// Configures workers for a queue.
///
/// A handler gets a [`Run`], which dereferences to its key. It may return `()`, a
/// [`Finish`](crate::Finish), or a `Result` with almost any error; see [`HandlerResult`]. An
/// error is retried, unless it is a [`Failed`] that says otherwise.
///
/// | | [`spawn_threads`](Pool::spawn_threads) | `spawn_tasks` (feature `tokio`) |
/// |---|---|---|
/// | a worker is | a thread | a task |
/// | the handler is | `Fn(&Run<K>) -> R` | `Fn(Run<K>) -> impl Future<Output = R>` |
/// | a run that exceeds the [timeout](Pool::timeout) | continues; it is counted, and its result stands | is cancelled and retried |
/// | a run at the deadline of [`stop`](Handle::stop) | continues | is cancelled and released |
///
/// The promises of the queue hold: no key is processed by two workers at the same time, and a
/// key that is added during its run is run once more afterwards.
///
/// A panic of the handler is caught, counted, and retried like an error. The panic hook still
/// prints its message. Panics of other user code do not end a worker either, such as a key's
/// `Clone`, an error's `Drop`, a callback, a recorder or the clock. With `panic = "abort"`
/// nothing can be caught.
///
/// # Stopping
///
/// Workers leave when the queue is closed and no key is ready. [`Handle::drain`] and
/// [`Handle::stop`] close the queue with a deadline and return the unfinished keys. A queue
/// also closes when all its handles are dropped, including those of the pool; the workers
/// hold none.
///
/// A handler that adds keys to its own queue should hold a [`WeakQueue`](crate::WeakQueue),
/// so that it does not keep the queue open.
///
/// # Examples
///
/// A handler that chooses how its lease ends:
///
/// ```
/// use std::time::Duration;
/// use requeue::pool::Pool;
/// use requeue::{Finish, Queue};
///
/// let queue = Queue::new();
/// queue.add_all(["poll", "once"])?;
/// let pool = Pool::new(queue).workers(2).spawn_threads(|run| match *run.key() {
///     "poll" => Ok(Finish::RequeueAfter(Duration::from_secs(3600))),
///     "once" => Ok(Finish::Succeed),
///     other => Err(format!("unknown key {other}")),
/// })?;
/// let stopped = pool.drain_blocking(Duration::from_secs(10));
/// assert_eq!(stopped.left, ["poll"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A handler that adds keys:
///
/// ```
/// use requeue::Queue;
/// use requeue::pool::Pool;
///
/// let queue = Queue::new();
/// queue.add(40_u32)?;
/// let weak = queue.downgrade();
/// let pool = Pool::new(queue).spawn_threads(move |run| {
///     if let (Some(queue), Some(next)) = (weak.upgrade(), run.checked_sub(1)) {
///         queue.add(next)?;
///     }
///     Ok::<_, requeue::Closed<u32>>(())
/// })?;
/// pool.queue().wait_idle_blocking();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "Controller")]
#[doc(alias = "Reconciler")]
#[must_use = "a pool does nothing until it is spawned"]
pub struct Pool<Q: Source> {
    queue: Q,
    workers: usize,
    metrics: Option<Box<dyn Metrics>>,
    callbacks: Callbacks<Q::Key>,
    inner: PoolInner,
}

/// What a pool calls with a key that failed.
struct Callbacks<K> {
    on_failure: Option<Callback<K>>,
    on_dead: Option<Callback<K>>,
}

type Callback<K> = Box<dyn Fn(&K, &Failure) + Send + Sync>;

/// What the workers, the runs and the handles of a pool share.
struct PoolInner {
    name: String,
    time: Time,
    timeout: Option<Duration>,
    max_retries: Option<u32>,
    recorder: Option<Box<dyn PoolRecorder>>,
    worker_set: Arc<WorkerSet>,
}

impl PoolInner {
    /// Reports to the recorder, if there is one, and contains its panic.
    fn record(&self, event: impl FnOnce(&dyn PoolRecorder)) {
        if let Some(recorder) = &self.recorder {
            contain(|| event(&**recorder));
        }
    }

    /// Returns how much of the timeout is left for a run.
    fn time_left(&self, started: Option<Instant>) -> Option<Duration> {
        let passed = started.map(|moment| self.time.since(moment)).unwrap_or_default();
        self.timeout.map(|timeout| timeout.saturating_sub(passed))
    }
}

impl<Q: Source> Pool<Q> {
    /// Starts to configure workers for `queue`. The default is one worker.
    pub fn new(queue: Q) -> Self {
        let inner = PoolInner {
            name: queue.name().to_owned(),
            time: Time::new(SystemClock),
            timeout: None,
            max_retries: None,
            recorder: None,
            worker_set: Arc::default(),
        };
        let callbacks = Callbacks { on_failure: None, on_dead: None };
        Self { queue, workers: 1, metrics: None, callbacks, inner }
    }

    /// Names the pool, for metrics, traces and threads. The default is the queue's name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.inner.name = name.into();
        self
    }

    /// Sets the number of workers. The default is one.
    ///
    /// With 0, keys wait until [`Handle::set_workers`] starts some.
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Limits the time of one run. The default is unlimited.
    ///
    /// A task that exceeds it is cancelled at an await, and the key is retried as after an
    /// error. A thread cannot be interrupted: [`Run::is_cancelled`] tells the handler, the
    /// run is counted when it ends, and its result stands.
    #[doc(alias = "ReconciliationTimeout")]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.inner.timeout = Some(timeout);
        self
    }

    /// Limits how often in a row a key is retried. The default is unlimited.
    ///
    /// A key whose last retry fails is dead: its lease ends with
    /// [`Finish::GiveUp`](crate::Finish::GiveUp) and [`on_dead`](Self::on_dead) is called.
    /// Both [`Finish::Retry`](crate::Finish::Retry) and
    /// [`Finish::RetryAfter`](crate::Finish::RetryAfter) count. With 0, nothing is retried.
    ///
    /// The retry policy counts the failures. A policy that does not count, such as
    /// [`Bucket`](crate::retry::Bucket) alone, has no maximum.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.inner.max_retries = Some(retries);
        self
    }

    /// Calls `callback` with each key that is dead: at
    /// [`max_retries`](Self::max_retries), or because its handler gave up.
    ///
    /// The worker calls it before the lease ends, and after
    /// [`on_failure`](Self::on_failure). A panic in it is caught and has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use requeue::Queue;
    /// use requeue::pool::Pool;
    ///
    /// let (send, dead) = mpsc::channel();
    /// let queue = Queue::new();
    /// queue.add(7)?;
    /// let pool = Pool::new(queue)
    ///     .max_retries(0)
    ///     .on_dead(move |key, failure| send.send((*key, failure.to_string())).unwrap())
    ///     .spawn_threads(|run| if run.key() % 2 == 0 { Ok(()) } else { Err("odd") })?;
    /// assert_eq!(dead.recv(), Ok((7, "odd".to_owned())));
    /// # drop(pool);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_dead(
        mut self,
        callback: impl Fn(&Q::Key, &Failure) + Send + Sync + 'static,
    ) -> Self {
        self.callbacks.on_dead = Some(Box::new(callback));
        self
    }

    /// Calls `callback` after each run that failed; otherwise as
    /// [`on_dead`](Self::on_dead).
    pub fn on_failure(
        mut self,
        callback: impl Fn(&Q::Key, &Failure) + Send + Sync + 'static,
    ) -> Self {
        self.callbacks.on_failure = Some(Box::new(callback));
        self
    }

    /// Sets the clock for timeouts, deadlines and durations. The default is the system's.
    ///
    /// The queue has its own clock; give both the same. Real time replaces a clock that
    /// panics.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.inner.time = Time::new(clock);
        self
    }

    /// Reports runs to `metrics`. By default nothing is measured.
    ///
    /// The queue has its own metrics; give its builder the same to measure both.
    pub fn metrics(mut self, metrics: impl Metrics + 'static) -> Self {
        self.metrics = Some(Box::new(metrics));
        self
    }

    /// Starts threads that run `handler` for each key.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread. Threads that were started leave again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::Queue;
    /// use requeue::pool::Pool;
    ///
    /// let queue = Queue::new();
    /// queue.add_all(["a.txt", "b.txt"])?;
    /// let pool = Pool::new(queue).workers(2).spawn_threads(|run| {
    ///     println!("processing {}", run.key());
    /// })?;
    /// let stopped = pool.drain_blocking(Duration::from_secs(10));
    /// assert!(stopped.left.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_threads<R, F>(self, handler: F) -> io::Result<Handle<Q>>
    where
        R: HandlerResult,
        F: Fn(&Run<Q::Key>) -> R + Send + Sync + 'static,
    {
        let prefix = thread_prefix(&self.inner.name);
        let handler = Arc::new(handler);
        self.start(move |worker| {
            let handler = Arc::clone(&handler);
            let name = format!("{prefix}-{}", worker.id());
            let thread = std::thread::Builder::new().name(name);
            thread.spawn(move || worker.work(&*handler)).map(drop)
        })
    }

    /// Starts tasks on the current tokio runtime that run `handler` for each key.
    ///
    /// The handler's future is dropped at an await when its run is cancelled, by the
    /// [timeout](Self::timeout) or by the deadline of [`Handle::stop`], so it must be cancel
    /// safe. The pool does not need tokio's time or I/O driver.
    ///
    /// If the runtime shuts down, the workers leave and release the keys of their runs.
    ///
    /// # Errors
    ///
    /// If there is no current runtime, or it has shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::Queue;
    /// use requeue::pool::Pool;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let queue = Queue::new();
    /// queue.add_all(["web", "mail"])?;
    /// let pool = Pool::new(queue)
    ///     .workers(2)
    ///     .timeout(Duration::from_secs(30))
    ///     .spawn_tasks(|run| async move {
    ///         if run.is_empty() { Err("no name") } else { Ok(()) }
    ///     })?;
    /// let stopped = pool.drain(Duration::from_secs(10)).await;
    /// assert!(stopped.in_time());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn spawn_tasks<R, F, T>(self, handler: F) -> io::Result<Handle<Q>>
    where
        R: HandlerResult,
        F: Fn(Run<Q::Key>) -> T + Send + Sync + 'static,
        T: Future<Output = R> + Send + 'static,
    {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let handler = Arc::new(handler);
        self.start(move |worker| {
            let handler = Arc::clone(&handler);
            let work = async move { worker.work_async(&*handler).await };
            task::check_started(runtime.spawn(work))
        })
    }

    fn start(
        self,
        start: impl Fn(Worker<Q>) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Handle<Q>> {
        let Self { queue, workers, metrics, callbacks, mut inner } = self;
        inner.recorder = metrics.map(|metrics| metrics.pool(&inner.name));
        let callbacks = Arc::new(callbacks);
        let start: Start<Q> = Box::new(move |running, registration| {
            start(Worker::new(running, Arc::clone(&callbacks), registration))
        });
        Handle::start(Running { queue, pool: Arc::new(inner), start }, workers)
    }
}

/// Returns the first part of the names of a pool's threads. A null byte in the name of a
/// thread is a panic.
fn thread_prefix(pool: &str) -> String {
    let name = pool.replace('\0', "");
    if name.is_empty() { "requeue".to_owned() } else { name }
}

impl<Q: Source> Debug for Pool<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.inner.name)
            .field("workers", &self.workers)
            .field("timeout", &self.inner.timeout)
            .field("max_retries", &self.inner.max_retries)
            .finish_non_exhaustive()
    }
}
