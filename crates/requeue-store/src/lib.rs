//! The queue of [`requeue`] on a store: for keys that must survive their process, or that
//! several machines share.
//!
//! ```
//! use requeue_store::{Error, MemoryStore, SharedQueue};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let queue = SharedQueue::<String, _>::new(MemoryStore::new());
//! queue.add("default/web".to_owned()).await?;
//! queue.add("default/web".to_owned()).await?; // already queued
//! while let Some(lease) = queue.try_get().await? { // or get(), which waits
//!     match lease.key().as_str() {
//!         "default/web" => lease.succeed().await?,
//!         _ => lease.with_error("unknown key").retry().await?,
//!     };
//! }
//! # Ok::<(), Error>(())
//! # }).unwrap();
//! ```
//!
//! # Which store
//!
//! | for | store | crate |
//! |---|---|---|
//! | tests | [`MemoryStore`] | this one |
//! | one process whose keys survive it | files in a folder | `requeue-fjall` |
//! | many machines, highest throughput | Redis or Valkey | `requeue-redis` |
//! | many machines, adds inside transactions | PostgreSQL | `requeue-postgres` |
//!
//! `docs/STORES.md` in the repository says what each store can lose at which setting.
//!
//! # Promises
//!
//! * A ready key is queued once, however often it is added.
//! * A key is processed by one worker at a time, as long as its lease lasts.
//! * A key that is added while it is being processed runs once more afterwards.
//! * When a worker dies, its leases expire and its keys are delivered again. So a key is
//!   processed *at least* once. Each lease has a [`Token`] that is greater than the tokens
//!   before it, and a worker that finishes too late is refused: [`ErrorKind::LeaseLost`].
//! * A delayed key is never early on the store's clock. No other clock matters.
//! * An acknowledged change is as durable as the store's own acknowledgements.
//! * A lease that is dropped without a finish is retried: the failure counts, and the key
//!   runs again after its backoff.
//! * A key whose workers die again and again, whose handler gives up, or that cannot be
//!   decoded, moves to the dead keys. It can be inspected, revived or dropped. An add revives
//!   it, even an add during its last lease.
//! * A lease survives any single call that is lost, refused or not answered. A server that
//!   hangs affects its own keys only.
//!
//! # Workers
//!
//! A [`Pool`](requeue::pool::Pool) works on a [`SharedQueue`] as on a queue in memory:
//!
//! ```
//! use requeue::pool::Pool;
//! use requeue_store::{Error, MemoryStore, SharedQueue};
//! use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_multi_thread().build().unwrap().block_on(async {
//! let queue = SharedQueue::<String, _>::new(MemoryStore::new());
//! queue.add_all(["a".to_owned(), "b".to_owned()]).await?;
//! let pool = Pool::new(queue.clone())
//!     .workers(4)
//!     .max_retries(5) // then the key is dead, with its last error
//!     .spawn_threads(|run| if run.is_empty() { Err("no name") } else { Ok(()) })
//!     .expect("four threads can be started");
//! pool.stop(Duration::from_secs(10)).await;
//! # Ok::<(), Error>(())
//! # }).unwrap();
//! ```
//!
//! # Errors
//!
//! Every call can fail, and [`Error::class`] says how to handle it. Transient errors are
//! repeated for the queue's [patience](SharedQueueBuilder::patience) if that is safe, and
//! never close a handle. If an answer is lost for good, the kind is [`ErrorKind::Unknown`].
//! A failed add returns its key: [`AddError`].
//!
//! # Rate limits
//!
//! A [`SharedLimiter`] is one rate limit for all workers on a store, for anything that they
//! do. [`Backoff::rate`] limits the retries of a queue.
//!
//! # Your own store
//!
//! Implement [`Store`], whose documentation is the specification, and pass
//! `conformance_tests!` of the feature `conformance`. A store that wraps another forwards
//! methods with [`forward_store!`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod builder;
mod client;
#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
mod engine_time;
mod error;
#[macro_use]
mod forward;
mod key;
mod lease;
mod limiter;
#[doc(hidden)]
pub mod machine;
mod memory;
mod queue;
mod race;
mod request;
mod source;
mod store;
mod sync;

pub use answer::{
    Dead, Expired, Failing, Finished, Grant, Leased, Look, Migration, Phase, Receipt,
    Stats, Taken, Worker,
};
pub use builder::SharedQueueBuilder;
pub use engine_time::{EngineClock, EngineTime, micros_of};
pub use error::{Class, Error, ErrorKind};
#[cfg(feature = "serde")]
pub use key::Json;
pub use key::{Key, StoreKey};
pub use lease::{Finishing, SharedLease};
pub use limiter::SharedLimiter;
pub use memory::MemoryStore;
pub use queue::{AddError, SharedQueue, WeakSharedQueue};
pub use race::within;
pub use request::{
    Add, Backoff, FinishRequest, Hold, LeaseRequest, Owner, Rate, TakeRequest, Token,
    When, Which,
};
pub use source::SharedGet;
pub use store::{Replies, RepliesExt, Reply, Store, every};
