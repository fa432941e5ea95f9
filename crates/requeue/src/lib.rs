//! A deduplicating work queue for controllers, syncers and workers.
//!
//! Producers add the key of each thing that has changed. Workers get keys and look at the
//! current state of the world, not at the event. So a hundred changes of one thing collapse
//! into one run, and a change during a run causes one more run afterwards.
//!
//! ```
//! use requeue::Queue;
//!
//! let queue = Queue::new();
//! queue.add("web")?;
//! queue.add("mail")?;
//! queue.add("web")?; // already queued
//! queue.close(); // no more adds; ready keys are still delivered
//!
//! let mut seen = Vec::new();
//! for lease in queue.leases_blocking() {
//!     seen.push(*lease);
//!     lease.succeed(); // or retry(), retry_after(..), give_up(), ...
//! }
//! assert_eq!(seen, ["web", "mail"]);
//! # Ok::<(), requeue::Closed<&str>>(())
//! ```
//!
//! The model is client-go's `workqueue`, which the controllers of Kubernetes are built on.
//! [`rate`] contains Go's `x/time/rate` and Uber's `ratelimit`, and can be used alone.
//!
//! # The promises
//!
//! 1. **Fair.** Keys are delivered in the order in which they became ready.
//! 2. **Deduplicating.** A key that is added many times before a worker gets it is
//!    delivered once.
//! 3. **One worker per key.** A key is never processed by two workers at once. If it is
//!    added while it is being processed, it is delivered once more afterwards.
//! 4. **Never early.** A delayed key is not delivered before its deadline. Of two deadlines
//!    the earlier counts.
//! 5. **Any number of producers and workers**, threads and tasks, on one queue. Cancelling a
//!    wait never loses a key or a wake-up.
//! 6. **Closing loses nothing.** Ready keys are still delivered, delayed keys are returned.
//! 7. **Panics are contained.** User code that panics leaves the queue usable and loses no
//!    other key.
//!
//! # States of a key
//!
//! | a key is | counted by | [`add`](Queue::add) makes it | until |
//! |---|---|---|---|
//! | unknown | – | ready | |
//! | ready | [`len`](Queue::len) | – | a worker gets it: processing |
//! | processing | [`counts`](Queue::counts) | dirty | its lease ends: unknown, or delayed if it is retried |
//! | processing and dirty | [`counts`](Queue::counts) | – | its lease ends: ready, at the tail |
//! | delayed | [`counts`](Queue::counts) | ready as well | its deadline: added |
//!
//! A delay is independent of the state: a key can be ready or processing and also have a
//! delay. With [`Builder::absorb_delays`], an add cancels the delay.
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
//! # How a lease ends
//!
//! A worker gets a key as a [`Lease`]. Only the lease can finish the key, and finishing
//! consumes it. [`Finish`] lists the ways; a lease has a method for each:
//!
//! | the run | method | failures of the key |
//! |---|---|---|
//! | succeeded | [`succeed`](Lease::succeed), [`next`](Lease::next) | forgotten |
//! | succeeded; run it again later | [`requeue_after`](Lease::requeue_after) | forgotten |
//! | failed | [`retry`](Lease::retry), or drop the lease | counted |
//! | failed; the delay is known | [`retry_after`](Lease::retry_after) | counted |
//! | failed for good | [`give_up`](Lease::give_up) | forgotten |
//! | did not happen | [`release`](Lease::release) | kept |
//! | ended, nothing else | [`done`](Lease::done) | kept |
//!
//! A lease that is dropped is retried, whether by a panic, a `?`, an aborted task or a
//! timeout. The [retry policy](retry) chooses the delay: by default 5 ms, doubling up to
//! 1000 s, per key.
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let queue = Queue::builder().clock(clock.clone()).build();
//! queue.add("web")?;
//! assert_eq!(queue.try_get()?.retry(), Duration::from_millis(5));
//! clock.advance(Duration::from_millis(5));
//! let lease = queue.try_get()?;
//! assert_eq!(lease.num_requeues(), 1);
//! assert_eq!(lease.retry(), Duration::from_millis(10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Delays
//!
//! [`add_after`](Queue::add_after) and [`add_at`](Queue::add_at) add a key later.
//! [`postpone`](Queue::postpone) moves a key back, [`remove`](Queue::remove) cancels it.
//! Delays have a resolution of one nanosecond and can have any length. They need no
//! background thread: one waiting worker sleeps until the earliest deadline.
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let queue = Queue::builder().clock(clock.clone()).build();
//! queue.add_after("web", Duration::from_secs(60))?;
//! queue.add_after("web", Duration::from_secs(30))?; // the earlier deadline counts
//! clock.advance(Duration::from_secs(30));
//! assert_eq!(queue.len(), 1);
//! assert_eq!(queue.counts().delayed, 0);
//! # Ok::<(), requeue::Closed<&str>>(())
//! ```
//!
//! # Limits
//!
//! A retry policy is about one key. To limit all workers together, share a
//! [`rate::Limiter`] or a [`rate::Pacer`] and wait for it with the lease in hand.
//!
//! ```
//! use requeue::Queue;
//! use requeue::rate::{Limit, Limiter};
//!
//! let calls = Limiter::new(Limit::per_second(1000.0), 10);
//! let queue = Queue::new();
//! queue.add_all(["web", "mail"])?;
//! while let Ok(lease) = queue.try_get() {
//!     calls.wait_blocking()?; // or wait().await
//!     lease.succeed();
//! }
//! assert!(calls.tokens() < 10.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Closing and draining
//!
//! | | ready keys | delayed keys | waits |
//! |---|---|---|---|
//! | [`close`](Queue::close) | are delivered | stay, to be returned by one of the others | no |
//! | [`close_now`](Queue::close_now) | are returned | are returned | no |
//! | [`drain`](Queue::drain) | are delivered | are returned | until no key is ready, processing or dirty |
//! | [`wait_idle`](Queue::wait_idle) | are delivered | are delivered at their deadlines | until the queue is empty; it stays open |
//!
//! Adding a key to a closed queue returns it in an error, [`Closed`]. Getters return `None`
//! once no key is ready. A queue closes when its last handle is dropped; code that should
//! not keep it open holds a [`WeakQueue`].
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//! use requeue::Queue;
//!
//! let queue = Queue::new();
//! queue.add("now")?;
//! queue.add_after("later", Duration::from_secs(3600))?;
//! let left = thread::scope(|scope| {
//!     scope.spawn(|| queue.leases_blocking().for_each(|lease| lease.succeed()));
//!     queue.drain_blocking()
//! });
//! assert_eq!(left, ["later"]);
//! assert_eq!(queue.add("too late").unwrap_err().into_key(), "too late");
//! # Ok::<(), requeue::Closed<&str>>(())
//! ```
//!
//! # Blocking and async together
//!
//! Threads call [`get_blocking`](Queue::get_blocking) and tasks await [`get`](Queue::get), on
//! the same queue at the same time. A method without `_blocking` in its name never blocks.
//! The futures need no particular runtime, and each documents what happens if it is dropped.
//!
//! ```
//! use std::thread;
//! use requeue::Queue;
//! # use futures::executor::block_on;
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
//!     queue.add_all(0..100)?;
//!     queue.drain_blocking();
//!     Ok::<_, requeue::Closed<_>>(thread.join().unwrap() + task.join().unwrap())
//! })?;
//! assert_eq!(done, 100);
//! # Ok::<(), requeue::Closed<Vec<u32>>>(())
//! ```
//!
//! # Orders
//!
//! The default is [`order::Fifo`]. [`order::Priority`] delivers urgent keys first and lets no
//! key starve, [`order::Fair`] alternates between groups of keys, and the trait
//! [`order::Order`] is for other orders.
//!
//! ```
//! use requeue::Queue;
//! use requeue::order::Fair;
//!
//! let tenant = |key: &(&'static str, u32)| key.0;
//! let queue = Queue::builder().order(Fair::by(tenant)).build();
//! queue.add_all([("busy", 1), ("busy", 2), ("busy", 3), ("calm", 1)])?;
//! let batch = queue.try_get_many(4)?;
//! let order: Vec<_> = batch.keys().copied().collect();
//! assert_eq!(order, [("busy", 1), ("calm", 1), ("busy", 2), ("busy", 3)]);
//! batch.succeed();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Workers
//!
//! A [`pool::Pool`] runs a handler for each key, on threads or, with the feature `tokio`, in
//! tasks. A handler that returns `Ok(())` or nothing succeeds. An error or a panic is
//! retried. A handler can also return a [`Finish`]. The pool limits the duration of a run
//! and the number of retries, changes its number of workers while it runs, and stops within
//! a deadline.
//!
//! ```
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::pool::Pool;
//!
//! let queue = Queue::<String>::new();
//! let pool = Pool::new(queue.clone()).workers(4).max_retries(10).spawn_threads(|run| {
//!     // Look at the world, and drive it to the desired state.
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
//! A queue is measured if its builder is given [`metrics`]. `metrics::Prometheus` (feature
//! `prometheus`) exposes the seven `workqueue_*` names of Kubernetes, so existing dashboards
//! and alerts work, and a few `requeue_*` names.
//!
//! ```
//! # #[cfg(feature = "prometheus")] {
//! use requeue::Queue;
//! use requeue::metrics::Prometheus;
//!
//! let prometheus = Prometheus::new();
//! let queue = Queue::builder().name("services").metrics(prometheus.clone()).build();
//! queue.add("web").unwrap();
//! assert!(prometheus.encode().contains("workqueue_depth{name=\"services\"} 1\n"));
//! # }
//! ```
//!
//! # Testing
//!
//! `testing::FakeClock` (feature `testing`) moves only by hand. It drives queues, pools,
//! limiters and pacers, blocking and async, so a test never sleeps. `TokioClock` (feature
//! `tokio`) follows the paused time of a tokio test.
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//! use requeue::Queue;
//! use requeue::testing::FakeClock;
//!
//! let clock = FakeClock::new();
//! let queue = Queue::builder().clock(clock.clone()).build();
//! queue.add_after("web", Duration::from_secs(3600))?;
//! let key = thread::scope(|scope| {
//!     let worker = scope.spawn(|| queue.get_blocking().map(|lease| *lease));
//!     clock.wait_for_timers_blocking(1); // the worker sleeps
//!     clock.advance(Duration::from_secs(3600));
//!     worker.join().unwrap()
//! });
//! assert_eq!(key, Some("web"));
//! # Ok::<(), requeue::Closed<&str>>(())
//! ```
//!
//! # Features
//!
//! None is on by default. Blocking and async use need none.
//!
//! | feature | adds |
//! |---|---|
//! | `futures` | `Queue::leases`, a `Stream` of leases |
//! | `prometheus` | `metrics::Prometheus` |
//! | `serde` | `Serialize` and `Deserialize` for plain data, such as [`Counts`] and [`Finish`] |
//! | `testing` | `testing::FakeClock`, and tickets to test an order with |
//! | `tokio` | `pool::Pool::spawn_tasks`, and `TokioClock` |
//! | `tower` | `rate::RateLimitLayer`, and `rate::KeyedRateLimitLayer`, which answers 429 |
//! | `tracing` | a span around each run of a pool, and events for failures |
//!
//! # Coming from client-go
//!
//! The Go names are search aliases: search for `AddRateLimited` to find [`Lease::retry`]. The
//! main differences:
//!
//! | client-go | here |
//! |---|---|
//! | three queue types | one; the [builder](Builder) configures it |
//! | `Get`, then `Done` | a [`Lease`]; finishing consumes it, and a dropped lease is retried |
//! | `Forget`, `AddRateLimited` and `Done` in the right order | [`succeed`](Lease::succeed), [`retry`](Lease::retry), [`requeue_after`](Lease::requeue_after) |
//! | an add after `ShutDown` is ignored | [`Closed`] returns the key |
//! | `ShutDownWithDrain` waits for processing keys | [`drain`](Queue::drain) also waits for ready and dirty keys, and returns the rest |
//! | goroutines for each queue | no thread per queue; one thread per process for the timers of tasks |
//! | one global metrics provider | one per queue, if it is measured |
//! | failure counts are kept forever | a bounded number, see [`Builder::max_tracked`] |
//!
//! `docs/COMPARE.md` in the repository maps every Go name and lists every difference.
//!
//! ```
//! use requeue::Queue;
//!
//! let queue = Queue::new();
//! queue.add("web")?; // Add
//! if let Some(lease) = queue.get_blocking() { // Get
//!     let succeeded = true;
//!     if succeeded {
//!         lease.succeed(); // Forget, Done
//!     } else {
//!         lease.retry(); // AddRateLimited, Done
//!     }
//! }
//! assert_eq!(queue.num_requeues(&"web"), 0); // NumRequeues
//! queue.close(); // ShutDown
//! # Ok::<(), requeue::Closed<&str>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod contain;
mod error;
mod key;
pub mod metrics;
pub mod pool;
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
