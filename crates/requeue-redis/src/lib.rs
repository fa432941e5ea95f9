//! The queue of [`requeue`] in Redis or Valkey: shared by many processes on many machines.
//!
//! ```no_run
//! use requeue_redis::RedisStore;
//! use requeue_store::Store;
//!
//! # async fn open() -> Result<(), requeue_store::Error> {
//! let store = RedisStore::builder("redis://localhost").queue("mail").open().await?;
//! assert_eq!(store.describe(), "redis at localhost:6379/0, queue mail");
//! # Ok(())
//! # }
//! ```
//!
//! A program seldom calls a [`RedisStore`] itself: it puts a
//! [`SharedQueue`](requeue_store::SharedQueue) on it.
//!
//! # What it needs
//!
//! Redis 6.2 or later, or Valkey, and a user that may run scripts. Every transition of a
//! key is one script, which the server carries out whole or not at all, by its own clock.
//! A server that is restarted or fails over forgets the scripts, not the keys; it is told
//! them again.
//!
//! # What is kept
//!
//! What the server keeps. With `appendfsync always` every key that was added is still there
//! after a crash; with `everysec`, those of the last second or two may be lost, and so may
//! those that a replica had not received when it took over; without persistence all are
//! gone with the server. Two workers never hold the same
//! [token](requeue_store::Token), whatever was lost: tokens follow the clock.
//!
//! # Partitions
//!
//! A queue is one line of ready keys in one hash slot, unless it is opened with several
//! [partitions](Builder::partitions): then a key belongs to one of them by its bytes, for
//! ever, and keys are handed out in order in each of them. The names of its Redis keys are
//! `rq:{queue:partition}:` and a letter, so that a node of Redis Cluster has a whole
//! partition; but this crate speaks to one server, not to a cluster.
//!
//! # Waiting
//!
//! All who [wait](requeue_store::Store::wait) in one store share one connection, on which a
//! blocking command waits for all of them. A key that comes into an empty queue wakes one
//! process; that one, if it leaves keys behind, the next. An idle process sends two
//! commands in 5 seconds.
//!
//! # Features
//!
//! None. Connections are not encrypted: addresses begin with `redis://` or `unix://`.

mod builder;
mod fault;
mod link;
mod partition;
mod people;
mod reply;
mod script;
mod store;
mod wait;
mod wish;
mod work;

pub use builder::Builder;
pub use store::RedisStore;
