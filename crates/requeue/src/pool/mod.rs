//! Workers over a queue: threads or tasks that run a handler for each key.
//!
//! A [`Pool`] does what every worker of a queue does: get a key, run a handler, and end
//! the lease by what the handler said. A handler that fails is retried by the queue's
//! [retry policy](crate::retry), and so is one that panics.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::pool::Pool;
//!
//! let queue = Queue::new();
//! let pool = Pool::new(queue.clone())
//!     .workers(4)
//!     .max_retries(5)
//!     .on_dead(|key, failure| println!("{key}: {failure}"))
//!     .run(|key: &String| if key.is_empty() { Err("no name") } else { Ok(()) })?;
//! queue.add("web".to_owned());
//! let stopped = pool.drain_blocking(Duration::from_secs(10));
//! assert!(stopped.in_time());
//! # Ok::<(), std::io::Error>(())
//! ```

mod config;
mod display;
mod handle;
mod outcome;
mod registry;
mod run;
#[cfg(all(test, requeue_shuttle))]
mod shuttle_tests;
mod sleeper;
mod slot;
mod source;
mod stopped;
#[cfg(feature = "tokio")]
mod task;
mod thread;
mod time;
mod trace;
mod verdict;
mod watcher;
mod worker;

use std::fmt::{self, Debug, Display};
#[cfg(feature = "tokio")]
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use self::handle::Handle;
pub use self::outcome::{Failure, Outcome};
pub use self::source::{Conclusion, Settled, Source, Work};
pub use self::stopped::Stopped;

use self::config::{Config, OnFailure, Recording};
use self::handle::{Running, Start};
use self::time::Time;
use crate::metrics::Metrics;
use crate::{Clock, Queue, SystemClock};

/// Workers over a queue, not started yet.
///
/// A handler is given a key and returns a `Result`: `Ok(())` if all went well, or
/// `Ok` with an [`Outcome`] to have the key come again or to give up, and an error to
/// have it retried. The queue's promises hold: no key is with two workers at a time, and a
/// key that is added while its handler runs is run once more, after.
///
/// | | [`run`](Pool::run) | `run_async` (feature `tokio`) |
/// |---|---|---|
/// | a worker is | a thread | a task |
/// | the handler is | `Fn(&K) -> Result<..>` | `Fn(K) -> impl Future<Output = Result<..>>` |
/// | a run over the [timeout](Pool::timeout) | is counted; its result stands | is cancelled and retried |
/// | a run at the deadline of [`stop`](Handle::stop) | is named, and goes on | is named and cancelled |
///
/// A panic of the handler is caught, counted, and retried like an error; its message goes
/// to the panic hook as always. Panics of other user code, such as a key's `Clone`, an error's
/// `Drop`, a callback, a recorder or the clock, do not end a worker either. With
/// `panic = "abort"` nothing can be caught.
///
/// # Ending
///
/// The workers hold no handle of the queue. They leave when it is closed and no key is
/// ready, which also happens when all its handles are dropped, those of the pool among
/// them. [`Handle::drain`] and [`Handle::stop`] close it with a deadline and say what is
/// left.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::Queue;
/// use requeue::pool::{Outcome, Pool};
///
/// let queue = Queue::new();
/// queue.add_all(["poll me", "once"]);
/// let pool = Pool::new(queue).workers(2).run(|key: &&str| match *key {
///     "poll me" => Ok(Outcome::After(Duration::from_secs(3600))),
///     "once" => Ok(Outcome::Done),
///     other => Err(format!("nobody knows {other}")),
/// })?;
/// let stopped = pool.drain_blocking(Duration::from_secs(10));
/// assert_eq!(stopped.left, ["poll me"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "Controller")]
#[doc(alias = "Reconciler")]
#[must_use = "a pool does nothing until it runs"]
pub struct Pool<K, E, Q = Queue<K>> {
    queue: Q,
    name: String,
    workers: usize,
    timeout: Option<Duration>,
    max_retries: Option<u32>,
    clock: Arc<dyn Clock>,
    on_failure: Option<OnFailure<K, E>>,
    on_dead: Option<OnFailure<K, E>>,
    metrics: Option<Box<dyn Metrics>>,
}

impl<K, E, Q: Source<Key = K>> Pool<K, E, Q> {
    /// Starts to configure workers over `queue`: one, if nothing else is said.
    pub fn new(queue: Q) -> Self {
        Self {
            name: queue.name().to_owned(),
            queue,
            workers: 1,
            timeout: None,
            max_retries: None,
            clock: Arc::new(SystemClock),
            on_failure: None,
            on_dead: None,
            metrics: None,
        }
    }

    /// Names the pool, for metrics, traces and threads. The default is the queue's name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how many workers there are; one unless told otherwise. With 0, keys wait until
    /// [`Handle::set_workers`], which changes it while they run, says more.
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Bounds the time of one run.
    ///
    /// A task that takes longer is cancelled where it awaits, and the key retried as after
    /// an error. A thread cannot be cancelled: a run that took longer is counted when it
    /// ends, and its result stands.
    #[doc(alias = "ReconciliationTimeout")]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Retries a key at most this often in a row; the run after that is its last. With 0,
    /// nothing is retried. There is no maximum by default.
    ///
    /// A key whose last run failed is dead: [`on_dead`](Self::on_dead) hears of it, its
    /// failures are forgotten, and it comes again only if it is added.
    ///
    /// The retry policy does the counting. One that does not count, such as
    /// [`Bucket`](crate::retry::Bucket) alone, knows no maximum.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Calls `callback` with each key that failed for good: after
    /// [`max_retries`](Self::max_retries), or because its handler gave up.
    ///
    /// It is called by the worker, before the key is given back, and after
    /// [`on_failure`](Self::on_failure). A panic in it is caught and changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use requeue::Queue;
    /// use requeue::pool::{Failure, Pool};
    ///
    /// let (dead, morgue) = mpsc::channel();
    /// let queue = Queue::new();
    /// queue.add(7);
    /// let pool = Pool::new(queue)
    ///     .max_retries(0)
    ///     .on_dead(move |key, failure: &Failure<String>| {
    ///         dead.send((*key, failure.to_string())).unwrap();
    ///     })
    ///     .run(|key: &u32| Err::<(), _>(format!("{key} is odd")))?;
    /// assert_eq!(morgue.recv(), Ok((7, "7 is odd".to_owned())));
    /// # drop(pool);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_dead(
        mut self,
        callback: impl Fn(&K, &Failure<E>) + Send + Sync + 'static,
    ) -> Self {
        self.on_dead = Some(Box::new(callback));
        self
    }

    /// Calls `callback` after each run that did not go well; otherwise as
    /// [`on_dead`](Self::on_dead).
    pub fn on_failure(
        mut self,
        callback: impl Fn(&K, &Failure<E>) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(callback));
        self
    }

    /// Takes the time of timeouts, deadlines and durations from `clock` instead of the
    /// system. The queue has its own: give both the same.
    ///
    /// Where the clock panics, real time takes its place.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Reports runs to `metrics`. Nothing is measured by default.
    ///
    /// The queue reports for itself, if its builder is given the same.
    pub fn metrics(mut self, metrics: impl Metrics + 'static) -> Self {
        self.metrics = Some(Box::new(metrics));
        self
    }
}

impl<K, E, Q> Pool<K, E, Q>
where
    K: Clone + Debug + Send + Sync + 'static,
    E: Display + 'static,
    Q: Source<Key = K>,
{
    /// Starts threads that run `handler` for each key.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread. Those that were started leave again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use requeue::Queue;
    /// use requeue::pool::Pool;
    ///
    /// let queue = Queue::new();
    /// queue.add_all(1..=100_u32);
    /// let pool = Pool::new(queue).workers(2).run(|key: &u32| {
    ///     u8::try_from(*key).map(|_| ()) // an error would be retried
    /// })?;
    /// let stopped = pool.drain_blocking(Duration::from_secs(10));
    /// assert!(stopped.left.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run<O, F>(self, handler: F) -> io::Result<Handle<K, Q>>
    where
        O: Into<Outcome>,
        F: Fn(&K) -> Result<O, E> + Send + Sync + 'static,
    {
        let prefix = thread_prefix(&self.name);
        let handler = Arc::new(handler);
        self.start(|config| {
            Box::new(move |worker| {
                let (config, handler) = (Arc::clone(&config), Arc::clone(&handler));
                let name = format!("{prefix}-{}", worker.id());
                let thread = std::thread::Builder::new().name(name);
                thread.spawn(move || worker.work(&config, &*handler)).map(drop)
            })
        })
    }

    /// Starts tasks of tokio that run `handler` for each key, on the runtime from which
    /// this is called.
    ///
    /// The handler's future is dropped when it is cancelled, by a
    /// [timeout](Self::timeout) or by the deadline of [`Handle::stop`]: it must bear
    /// being dropped where it awaits. Nothing of tokio's time or I/O driver is used.
    ///
    /// If the runtime shuts down, the workers leave and the keys of their runs are retried:
    /// they return to the queue.
    ///
    /// # Errors
    ///
    /// If this is called from outside a runtime, or the runtime has shut down.
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
    /// queue.add_all(["web", "mail"]);
    /// let pool = Pool::new(queue)
    ///     .workers(2)
    ///     .timeout(Duration::from_secs(30))
    ///     .run_async(|key: &str| async move {
    ///         if key.is_empty() { Err("no name") } else { Ok(()) }
    ///     })?;
    /// let stopped = pool.drain(Duration::from_secs(10)).await;
    /// assert!(stopped.in_time());
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn run_async<O, F, T>(self, handler: F) -> io::Result<Handle<K, Q>>
    where
        E: Send,
        O: Into<Outcome> + Send,
        F: Fn(K) -> T + Send + Sync + 'static,
        T: Future<Output = Result<O, E>> + Send + 'static,
    {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let handler = Arc::new(handler);
        self.start(|config| {
            Box::new(move |worker| {
                let (config, handler) = (Arc::clone(&config), Arc::clone(&handler));
                let work = async move { worker.work_async(&config, &*handler).await };
                task::check_started(runtime.spawn(work))
            })
        })
    }

    fn start(
        self,
        start: impl FnOnce(Arc<Config<K, E>>) -> Start<Q>,
    ) -> io::Result<Handle<K, Q>> {
        let recorder = self.metrics.map(|metrics| metrics.pool(&self.name));
        let (time, recorder) = (Time::new(self.clock), Recording::new(recorder));
        let config = Config {
            name: self.name,
            time: time.clone(),
            timeout: self.timeout,
            max_retries: self.max_retries,
            on_failure: self.on_failure,
            on_dead: self.on_dead,
            recorder: recorder.clone(),
        };
        let start = start(Arc::new(config));
        Handle::start(Running::new(self.queue, time, recorder, start), self.workers)
    }
}

/// What the names of a pool's threads begin with. A null byte in the name of a thread is a
/// panic.
fn thread_prefix(pool: &str) -> String {
    let name = pool.replace('\0', "");
    if name.is_empty() { "requeue".to_owned() } else { name }
}

impl<K, E, Q> Debug for Pool<K, E, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.name)
            .field("workers", &self.workers)
            .field("timeout", &self.timeout)
            .field("max_retries", &self.max_retries)
            .finish_non_exhaustive()
    }
}
