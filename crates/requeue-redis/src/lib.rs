//! The queue of [`requeue`] in Redis or Valkey: shared by many processes on many machines.
//!
//! ```no_run
//! use requeue_redis::RedisStore;
//! use requeue_store::SharedQueue;
//!
//! # async fn open() -> Result<(), requeue_store::Error> {
//! let store = RedisStore::builder("redis://localhost").queue("mail").open().await?;
//! let queue = SharedQueue::<String, _>::new(store);
//! queue.add("invoice-7".to_owned()).await?;
//! while let Some(lease) = queue.get().await? { // on this machine or another
//!     println!("{} is to be sent", lease.key());
//!     lease.succeed().await?; // or retry("why")
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program seldom calls a [`RedisStore`] itself, but the
//! [`SharedQueue`](requeue_store::SharedQueue) that it puts on it.
//!
//! # What it needs
//!
//! Redis 6.2 or later, or Valkey, and a user that may run scripts. Every transition of a
//! key is one script, which the server carries out whole or not at all, by its own clock.
//! A server that is restarted or fails over forgets the scripts, not the keys; it is told
//! them again.
//!
//! Or Redis Cluster, by the addresses of some of its nodes:
//! `redis-cluster://user:password@host:port,host:port`. All nodes have the same user and
//! password. The others are found by asking. A slot that moved, or whose replica took over,
//! is followed; while its keys are on the way to another node, calls fail with
//! [`Unavailable`](requeue_store::ErrorKind::Unavailable).
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
//! A queue is in one hash slot, unless it is opened with several
//! [partitions](RedisStoreBuilder::partitions): then a key belongs to one of them by its bytes, for
//! ever, and keys are handed out by priority and in order in each of them. The names of its Redis keys are
//! `rq:{queue:partition}:` and a letter, so that a node of Redis Cluster has a whole
//! partition. There, partitions are what spreads a queue over nodes: with one, all of it is
//! on one node. Four for each node spread it evenly enough.
//!
//! A call for several partitions is sent to their nodes at the same time, and is not one
//! step. A lease hands out what the nodes have that answer, even if another one is not
//! there; other calls fail. If a part of one was carried out, its error is
//! [`Unknown`](requeue_store::ErrorKind::Unknown).
//!
//! # Priorities
//!
//! Keys of priority 0 stand in a list, all others in a sorted set. While one of those is
//! ready, a lease looks at both; a queue without priorities pays nothing for that. A grant
//! goes to the key that is ready for the longest, whatever its priority, about once in 256
//! times: if the token of the first key of a lease, divided by 256, leaves less than the
//! number of keys that were asked for.
//!
//! # Waiting
//!
//! All who [wait](requeue_store::Store::wait) in one store share one connection, on which a
//! blocking command waits for all of them. A key that comes into an empty queue wakes one
//! process; that one, if it leaves keys behind, the next. An idle process sends two
//! commands in 5 seconds, and one more for each partition beyond the first.
//!
//! In a cluster no command can wait for several slots. So there is a connection for each
//! partition, on which a command waits for 30 seconds, or 19 for the first one: with 8
//! partitions an idle process sends four commands in 5 seconds, to all nodes together.
//!
//! # TLS
//!
//! `rediss://` and `rediss-cluster://`, see [`RedisStore::builder`]. It uses ring, unless
//! the program has chosen another provider of cryptography for rustls.

mod address;
mod builder;
mod cluster;
mod fault;
mod link;
mod name;
mod partition;
mod people;
mod reply;
mod script;
mod servers;
mod single;
mod store;
mod wait;
mod wish;
mod work;

pub use builder::RedisStoreBuilder;
pub use store::RedisStore;

/// The page of the repository about stores, so that its example is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/STORES.md")]
struct Stores;
