//! A queue of keys for code that must bring things to their right state.
//!
//! Whoever notices a change adds the key of what changed. Workers get keys and look at
//! the world, not at the event: so a hundred changes of one thing are worth one look, and
//! a change during a look is worth one more.
//!
//! ```
//! use requeue::Queue;
//!
//! let queue = Queue::new();
//! queue.add("web");
//! queue.add("mail");
//! queue.add("web"); // is in the queue already
//! queue.close(); // no more adds; what is ready is still handed out
//!
//! let mut seen = Vec::new();
//! while let Some(lease) = queue.get_blocking() {
//!     seen.push(*lease);
//!     lease.succeed(); // or retry(), or retry_after(..)
//! }
//! assert_eq!(seen, ["web", "mail"]);
//! ```
//!
//! The model is client-go's `workqueue`, on which the controllers of Kubernetes run.
//! [`rate`] is Go's `x/time/rate` and Uber's `ratelimit`, and stands on its own.
//!
//! # The promises
//!
//! 1. **Fair.** Keys are handed out in the order in which they became ready.
//! 2. **Stingy.** A key that is added many times before a worker gets it is handed out
//!    once.
//! 3. **One worker for a key.** A key is never with two workers at a time. If it is added
//!    while a worker has it, it is handed out once more, after.
//! 4. **Not before its time.** A delayed key is not handed out early. Of two delays the
//!    earlier counts.
//! 5. **Any number of producers and workers**, threads and tasks, on one queue. Who stops
//!    waiting loses no key and takes no wake-up along.
//! 6. **Nothing is lost by closing.** What is ready is handed out to the end, and what is
//!    delayed is handed back.
//!
//! # States of a key
//!
//! | a key is | counted by | [`add`](Queue::add) makes it | ends when |
//! |---|---|---|---|
//! | unknown | nothing | ready | |
//! | ready | [`len`](Queue::len) | stay ready | a worker gets it: processing |
//! | processing | [`counts`](Queue::counts) | dirty | its lease ends: unknown, or delayed by a retry |
//! | processing and dirty | [`counts`](Queue::counts) | stay dirty | its lease ends: ready, at the tail |
//! | delayed | [`counts`](Queue::counts) | ready as well | its time comes: added |
//!
//! A delay is apart from the rest: a key can be ready or processing and have a delay
//! besides. [`Builder::absorb_delays`] makes an add take the delay along.
//!
//! ```
//! use requeue::{Added, Counts, Queue};
//!
//! let queue = Queue::new();
//! assert_eq!(queue.add("web"), Ok(Added::Ready));
//! let lease = queue.try_get()?;
//! assert_eq!(queue.add("web"), Ok(Added::Dirty));
//! assert_eq!(queue.counts(), Counts { processing: 1, dirty: 1, ..Counts::default() });
//! lease.succeed();
//! assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
//! # Ok::<(), requeue::TryGetError>(())
//! ```
//!
//! # Delays
//!
//! [`add_after`](Queue::add_after) and [`add_at`](Queue::add_at) add a key later.
//! [`postpone`](Queue::postpone) puts it off, [`remove`](Queue::remove) takes it out.
//! Delays are kept to the nanosecond and may be of any length. No thread stands behind
//! them: a worker that waits sleeps until the next delay is over.
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let queue = Queue::builder().clock(clock.clone()).build();
//! queue.add_after("web", Duration::from_secs(60));
//! queue.add_after("web", Duration::from_secs(30)); // the earlier time counts
//! clock.advance(Duration::from_secs(30));
//! assert_eq!(queue.len(), 1);
//! assert_eq!(queue.counts().delayed, 0);
//! ```
//!
//! # Retries
//!
//! [`Lease::retry`] counts a failure and has the key come again, after a delay that the
//! queue's [retry policy](retry) chooses: 5 ms at first, doubling up to 1000 s, for each
//! key, unless the builder is given another. [`Lease::succeed`] forgets the failures. A
//! lease that is dropped by a panic is retried.
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let queue = Queue::builder().clock(clock.clone()).build();
//! queue.add("web");
//! assert_eq!(queue.try_get()?.retry(), Duration::from_millis(5));
//! clock.advance(Duration::from_millis(5));
//! let lease = queue.try_get()?;
//! assert_eq!(lease.num_requeues(), 1);
//! assert_eq!(lease.retry(), Duration::from_millis(10));
//! # Ok::<(), requeue::TryGetError>(())
//! ```
//!
//! # Limits
//!
//! A retry policy is about one key. To bound what all workers do together, share a
//! [`rate::Limiter`] or a [`rate::Pacer`] between them and wait for it with a lease in
//! hand.
//!
//! ```
//! use requeue::Queue;
//! use requeue::rate::{Limit, Limiter};
//!
//! let calls = Limiter::new(Limit::per_second(1000.0), 10);
//! let queue = Queue::new();
//! queue.add_all(["web", "mail"]);
//! while let Ok(lease) = queue.try_get() {
//!     calls.wait_blocking()?; // or wait().await
//!     lease.succeed();
//! }
//! assert!(calls.tokens() < 10.0);
//! # Ok::<(), requeue::rate::WaitError>(())
//! ```
//!
//! # Closing and draining
//!
//! | | ready keys | delayed keys | waits |
//! |---|---|---|---|
//! | [`close`](Queue::close) | are handed out | stay, for one of the others | no |
//! | [`close_now`](Queue::close_now) | are handed back | are handed back | no |
//! | [`drain`](Queue::drain) | are handed out | are handed back | until no key is ready, processing or dirty |
//! | [`wait_idle`](Queue::wait_idle) | are handed out | are handed out in their time | until the queue holds nothing; it stays open |
//!
//! A closed queue refuses keys with [`Closed`], which carries the key. Its getters get `None` once no key
//! is ready. Dropping the last handle of a queue closes it.
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//! use requeue::Queue;
//!
//! let queue = Queue::new();
//! queue.add("now");
//! queue.add_after("later", Duration::from_secs(3600));
//! let left = thread::scope(|scope| {
//!     scope.spawn(|| while let Some(lease) = queue.get_blocking() { lease.succeed() });
//!     queue.drain_blocking()
//! });
//! assert_eq!(left, ["later"]);
//! assert_eq!(queue.add("too late").unwrap_err().into_key(), "too late");
//! ```
//!
//! # Blocking and async together
//!
//! Threads call [`get_blocking`](Queue::get_blocking), tasks await [`get`](Queue::get), on
//! the same queue at the same time. The futures need no runtime: any executor will do.
//! Each of them says in its documentation what happens if it is dropped.
//!
//! ```
//! use std::thread;
//! use requeue::Queue;
//! # use futures_executor::block_on;
//!
//! let queue = Queue::<u32>::new();
//! let done = thread::scope(|scope| {
//!     let thread = scope.spawn(|| {
//!         let mut done = 0;
//!         while let Some(lease) = queue.get_blocking() {
//!             done += 1;
//!             lease.succeed();
//!         }
//!         done
//!     });
//!     let task = scope.spawn(|| block_on(async {
//!         let mut done = 0;
//!         while let Some(lease) = queue.get().await {
//!             done += 1;
//!             lease.succeed();
//!         }
//!         done
//!     }));
//!     queue.add_all(0..100);
//!     queue.drain_blocking();
//!     thread.join().unwrap() + task.join().unwrap()
//! });
//! assert_eq!(done, 100);
//! ```
//!
//! # Orders
//!
//! [`order::Fifo`] is the default. [`order::Priority`] hands out what is most urgent and
//! lets nothing starve, [`order::Fair`] lets groups of keys take turns, and the trait
//! [`order::Order`] is for an order of one's own.
//!
//! ```
//! use requeue::Queue;
//! use requeue::order::Fair;
//!
//! let tenant = |key: &(&'static str, u32)| key.0;
//! let queue = Queue::builder().order(Fair::by(tenant)).build();
//! queue.add_all([("busy", 1), ("busy", 2), ("busy", 3), ("calm", 1)]);
//! let batch = queue.try_get_many(4)?;
//! let order: Vec<_> = batch.keys().copied().collect();
//! assert_eq!(order, [("busy", 1), ("calm", 1), ("busy", 2), ("busy", 3)]);
//! # Ok::<(), requeue::TryGetError>(())
//! ```
//!
//! # Workers
//!
//! A [`pool::Pool`] runs a handler for each key, on threads or, with the feature `tokio`, in
//! tasks. A run that returns an error or panics is retried; a handler can also return a
//! [`Finish`]. A pool limits the time of a run and the number of retries, changes the number
//! of workers while it runs, and stops by a deadline.
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::pool::Pool;
//!
//! let queue = Queue::<String>::new();
//! let pool = Pool::new(queue.clone()).workers(4).max_retries(10).spawn_threads(|run| {
//!     println!("checking the service {}", run.key());
//!     if run.is_empty() { Err("a service without a name") } else { Ok(()) }
//! })?;
//! queue.add("web".to_owned())?;
//! let stopped = pool.drain_blocking(Duration::from_secs(30));
//! assert!(stopped.in_time(), "{:?} still ran", stopped.still_running);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Metrics
//!
//! A queue whose builder is given [`metrics`] is measured; others are not, and read no
//! clock for it. `metrics::Prometheus` (feature `prometheus`) exposes the seven
//! `workqueue_*` names of Kubernetes, so that existing dashboards and alerts work, and
//! some of our own.
//!
//! ```
//! # #[cfg(feature = "prometheus")] {
//! use requeue::Queue;
//! use requeue::metrics::Prometheus;
//!
//! let prometheus = Prometheus::new();
//! let queue = Queue::builder().name("services").metrics(prometheus.clone()).build();
//! queue.add("web");
//! assert!(prometheus.encode().contains("workqueue_depth{name=\"services\"} 1\n"));
//! # }
//! ```
//!
//! # Testing
//!
//! `testing::FakeClock` (feature `testing`) moves only when a test says so, and drives
//! queues, pools, limiters and pacers, blocking and async. A test never sleeps.
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let queue = Queue::builder().clock(clock.clone()).build();
//! queue.add_after("web", Duration::from_secs(3600));
//! let key = thread::scope(|scope| {
//!     let worker = scope.spawn(|| queue.get_blocking().map(|lease| *lease));
//!     clock.wait_for_timers_blocking(1); // the worker sleeps
//!     clock.advance(Duration::from_secs(3600));
//!     worker.join().unwrap()
//! });
//! assert_eq!(key, Some("web"));
//! ```
//!
//! # Features
//!
//! None is on by default; blocking and async use are always there.
//!
//! | feature | brings |
//! |---|---|
//! | `prometheus` | `metrics::Prometheus`, an adapter for the crate prometheus-client |
//! | `testing` | `testing::FakeClock`, and tickets to test an order with |
//! | `tokio` | `pool::Pool::spawn_tasks`, workers in tasks of tokio; `TokioClock` |
//! | `tower` | `rate::RateLimitLayer`, a limiter around services of tower |
//! | `tracing` | a span around each run of a pool, and events for what fails |
//!
//! # Coming from client-go
//!
//! The Go names are search aliases here: look for `AddRateLimited` and find
//! [`Lease::retry`]. The main differences:
//!
//! | client-go | here |
//! |---|---|
//! | three queue types | one; the [builder](Builder) configures it |
//! | `Get`, then `Done` | a [`Lease`]; ending it consumes it, dropping it ends it |
//! | `Forget`, `AddRateLimited` and `Done` in the right order | [`succeed`](Lease::succeed), [`retry`](Lease::retry), [`retry_after`](Lease::retry_after) |
//! | an add after `ShutDown` is lost in silence | [`Closed`] returns the key |
//! | `ShutDownWithDrain` waits for what is processing | [`drain`](Queue::drain) waits for what is ready and dirty too, and hands back the rest |
//! | goroutines for each queue | none, and no thread; one thread of the process rings the timers of tasks |
//! | one global metrics provider | one for each queue that wants it |
//! | failure counts are kept for ever | at most so many, see [`Builder::max_tracked`] |
//!
//! `docs/COMPARE.md` in the repository maps every Go name and lists every difference.
//!
//! ```
//! use requeue::Queue;
//!
//! let queue = Queue::new();
//! queue.add("web"); // Add
//! if let Some(lease) = queue.get_blocking() { // Get
//!     let went_well = true;
//!     if went_well {
//!         lease.succeed(); // Forget, Done
//!     } else {
//!         lease.retry(); // AddRateLimited, Done
//!     }
//! }
//! assert_eq!(queue.num_requeues(&"web"), 0); // NumRequeues
//! queue.close(); // ShutDown
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod contain;
mod error;
mod key;
pub mod metrics;
pub mod pool;
mod probing;
mod queue;
pub mod rate;
pub mod retry;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wake;

#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use clock::TokioClock;
pub use clock::{Clock, SystemClock, Timer};
pub use error::{Closed, DrainTimeout, GetTimeoutError, TryGetError};
pub use key::ToKey;
#[cfg(feature = "futures")]
#[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
pub use queue::Leases;
pub use queue::order;
pub use queue::{
    AddOptions, Added, AddedAll, Batch, Builder, Counts, Drain, Finish, Get, GetMany,
    Lease, LeasesBlocking, Queue, WaitIdle, WeakQueue,
};

/// The pages of the repository, so that their examples run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/ARCHITECTURE.md")]
    struct Architecture;
    #[doc = include_str!("../../../docs/COMPARE.md")]
    struct Compare;
    #[doc = include_str!("../../../docs/DESIGN.md")]
    struct Design;
    #[doc = include_str!("../../../docs/LIMITERS.md")]
    struct Limiters;
    #[doc = include_str!("../../../docs/METRICS.md")]
    struct Metrics;
    #[cfg(feature = "tokio")]
    #[doc = include_str!("../../../docs/TESTING.md")]
    struct Testing;
}
