//! A store for [`requeue`] on Redis or Valkey, shared by many processes and machines.
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
//!     println!("sending {}", lease.key());
//!     lease.succeed().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Programs rarely call a [`RedisStore`] directly. They use it through a
//! [`SharedQueue`](requeue_store::SharedQueue).
//!
//! # Requirements
//!
//! Redis 6.2 or later, or Valkey, and a user that may run scripts. Every transition of a key
//! is one script, which the server executes atomically and by its own clock. After a restart
//! or a failover, missing scripts are loaded again.
//!
//! Redis Cluster is supported: `redis-cluster://user:password@host:port,host:port` names some
//! of its nodes, which must all have the same user and password. The client finds the other
//! nodes, and follows slots that are moved and replicas that take over. While the keys of a
//! slot are being moved, calls fail with
//! [`Unavailable`](requeue_store::ErrorKind::Unavailable).
//!
//! # Durability
//!
//! The store is as durable as the server. With `appendfsync always`, every added key survives
//! a crash. With `everysec`, a crash loses the last second or two. A failover loses the writes
//! that the replica had not received. Without persistence, a restart loses everything. Two
//! leases never have the same [token](requeue_store::Token), even after such a loss: tokens
//! follow the clock.
//!
//! # Partitions
//!
//! By default a queue is in one hash slot. A queue with several
//! [partitions](RedisStoreBuilder::partitions) assigns each key to one of them by its hash.
//! Priorities and order hold within a partition. The Redis keys of a partition are named
//! `rq:{queue:partition}:` and a letter, so Redis Cluster keeps a partition on one node. Four
//! partitions for each node spread a queue evenly enough.
//!
//! A call that concerns several partitions goes to all their nodes at the same time and is not
//! atomic. A lease returns the keys of the nodes that can be reached; other calls fail if one
//! node does. If part of a call may have been executed, its error is
//! [`Unknown`](requeue_store::ErrorKind::Unknown).
//!
//! # Priorities
//!
//! Ready keys are delivered by priority, then in the order in which they became ready. About
//! one delivery in 256 goes to the key that has been ready for the longest, whatever its
//! priority, so that no key starves.
//!
//! # Waiting
//!
//! All callers of a store that [wait](requeue_store::Store::wait) share one connection with
//! one blocking command. A key that is added to an empty queue wakes one process; if that
//! leaves keys behind, it wakes the next. An idle process sends two commands in 5 seconds, and
//! one more for each further partition.
//!
//! In a cluster each partition has its own connection, because no command can wait for keys in
//! several slots. With 8 partitions an idle process sends four commands in 5 seconds to all
//! nodes together.
//!
//! # TLS
//!
//! Use `rediss://` or `rediss-cluster://`, see [`RedisStore::builder`]. The crate uses ring,
//! unless the program has installed another cryptography provider for rustls.

mod add;
mod address;
mod builder;
mod chunk;
mod client;
mod cluster;
mod durability;
mod encode;
mod endpoint;
mod engine;
mod error;
mod finish;
mod inspect;
mod lease;
mod link;
mod migrate;
mod node;
mod operate;
mod partition;
mod record;
mod reply;
mod script;
mod sentinel;
mod single;
mod store;
mod waiters;

pub use builder::RedisStoreBuilder;
pub use durability::Durability;
pub use store::RedisStore;
