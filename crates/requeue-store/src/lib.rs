//! The queue of [`requeue`], for keys that must not be lost with a process, or that many
//! machines work on.
//!
//! ```
//! use requeue_store::{Error, MemoryStore, SharedQueue};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let queue = SharedQueue::<String, _>::new(MemoryStore::new());
//! queue.add("default/web".to_owned()).await?;
//! queue.add("default/web".to_owned()).await?; // there already
//! while let Some(lease) = queue.try_get().await? {
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
//! | one process whose keys outlive it | files in a folder | `requeue-fjall` |
//! | many machines, the most keys a second | Redis or Valkey | `requeue-redis` |
//! | many machines, and adds that are part of a transaction | PostgreSQL | `requeue-postgres` |
//!
//! `docs/STORES.md` in the repository says what each of them loses at which setting, with
//! figures.
//!
//! # What is promised
//!
//! * A key that is ready is ready once, however often it is added.
//! * A key is with one worker at a time, as long as its lease lasts.
//! * A key that is added while it is processed is processed once more, after. There is one
//!   record for a key with one bit for this, never two that could get into each other's
//!   way.
//! * A worker that dies keeps its keys until their leases run out; then another has them.
//!   So a key is worked on *at least* once. Each grant has a [`Token`], greater than those
//!   before it, and a worker that comes back too late is refused:
//!   [`ErrorKind::LeaseLost`].
//! * A key that is delayed comes not before its time, on the store's clock. No other clock
//!   matters.
//! * What is acknowledged is kept, as far as the store itself keeps what it acknowledges.
//! * A key whose workers die again and again, and one whose handler gives up, goes to the
//!   dead: it is shown, and can be revived or dropped.
//!
//! # Workers
//!
//! A [`Pool`](requeue::pool::Pool) runs on a [`SharedQueue`] as on a queue in memory:
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
//!     .max_retries(5) // then the key goes to the dead, with its last error
//!     .spawn_threads(|run| if run.is_empty() { Err("no name") } else { Ok(()) })
//!     .expect("the system gives us four threads");
//! pool.stop(Duration::from_secs(10)).await;
//! # Ok::<(), Error>(())
//! # }).unwrap();
//! ```
//!
//! # Errors
//!
//! Every call can fail, and [`Error::kind`] says what that means. While a store cannot be
//! reached, calls are repeated for as long as the queue's
//! [patience](SharedQueueBuilder::patience) lasts, where repeating is safe; where an answer was
//! lost for good, the outcome is [`ErrorKind::Unknown`] and not a guess.
//!
//! # A store of one's own
//!
//! implements [`Store`], whose documentation is the specification, and passes
//! `conformance_tests!` of the feature `conformance`. A store that stands before another
//! passes on what it does not change with [`forward_store!`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod batch;
mod builder;
#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
mod engine;
mod error;
#[macro_use]
mod forward;
mod getters;
mod held;
mod key;
mod lease;
pub mod machine;
mod memory;
mod meter;
mod moment;
mod queue;
mod race;
mod request;
mod source;
mod store;
mod sync;
mod tally;

pub use answer::{
    Dead, Expired, Failing, Finished, Grant, Leased, Look, Phase, Receipt, Stats, Worker,
};
pub use builder::SharedQueueBuilder;
pub use error::{Error, ErrorKind};
#[cfg(feature = "serde")]
pub use key::Json;
pub use key::{Key, StoreKey};
pub use lease::{Finishing, SharedLease};
pub use memory::MemoryStore;
pub use moment::{EngineClock, Moment, Now, micros_of};
pub use queue::SharedQueue;
pub use race::within;
pub use request::{
    Add, Backoff, FinishRequest, Hold, LeaseRequest, Owner, Rate, Token, When, Which,
};
pub use source::SharedGet;
pub use store::{Reply, Store};
