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
//! Redis 6.2 or later, or Valkey. Every transition of a key is one script, which the server
//! executes atomically and by its own clock. After a restart or a failover, missing scripts
//! are loaded again. `maxmemory-policy` must be `noeviction`; see
//! [`on_warning`](RedisStoreBuilder::on_warning).
//!
//! # Clusters and sentinels
//!
//! Redis Cluster is supported: `redis-cluster://user:password@host:port,host:port` names some
//! of its nodes, which must all have the same user and password. The client finds the other
//! nodes, and follows slots that are moved and replicas that take over. While the keys of a
//! slot are being moved, calls fail with
//! [`Unavailable`](requeue_store::ErrorKind::Unavailable).
//!
//! A node that is down or does not answer affects only its own keys. After the first call
//! without an answer, calls to that node fail at once, until it answers a probe.
//!
//! With `redis+sentinel://user:password@host:port,host:port/name`, the client asks the
//! sentinels for the primary called `name` each time it connects. It uses the first answer
//! for which the named server says that it is a primary.
//!
//! # Permissions
//!
//! These users have the least permissions for the queue `mail`. A producer adds and cancels
//! keys, a worker also processes them, and a reader looks at the queue (with
//! [`must_exist`](RedisStoreBuilder::must_exist)). Only a worker can call
//! [`lease`](requeue_store::Store::lease), because only it has access to the Redis key with
//! the leases. Add `+wait` or `+waitaof` for [`Durability`], and `+role` for sentinels.
//!
//! ```text
//! ACL SETUSER producer on >secret ~rq5:{mail:*}:[^l]* ~rq:{mail:*}:m -@all +hello +auth +select +ping +info \
//!     +time +evalsha +script|load +@hash +@list +@sortedset -@blocking +get +set +exists \
//!     +type +unlink +rename
//! ACL SETUSER worker on >secret ~rq5:{mail:*}:* ~rq:{mail:*}:m -@all +hello +auth +select +ping +info \
//!     +time +evalsha +script|load +@hash +@list +@sortedset +get +set +exists +type \
//!     +unlink +rename
//! ACL SETUSER reader on >secret ~rq5:{mail:*}:* ~rq:{mail:*}:m -@all +hello +auth +select \
//!     +ping +info +time +evalsha +script|load +hget +hmget +hlen +hscan +llen +lindex \
//!     +lrange +zcard +zcount +zrange +zrangebyscore +zscore +zmscore +zscan +exists +type \
//!     +get
//! ```
//!
//! # Durability
//!
//! The store is as durable as the server. With `appendfsync always`, every added key survives
//! a crash. With `everysec`, a crash loses the last second or two. A failover loses the writes
//! that the replica had not received; [`Durability`] makes adds wait for replicas or disks.
//! Without persistence, a restart loses everything.
//!
//! The [token](requeue_store::Token) of a lease is greater than all tokens that the partition
//! still has and that this process has received, and not less than the server's time. So the
//! tokens of a key increase after a failover, even if the clock of the new server is behind.
//! The exception is a token that only another process has received, if the new server did not
//! receive it and its clock is behind by more than the failover took.
//!
//! # Versions of the data
//!
//! The version is part of the names of all Redis keys, and this is version 5. Opening a queue
//! of version 4 fails with [`Version`](requeue_store::ErrorKind::Version);
//! [`migrate`](RedisStoreBuilder::migrate), or `requeue migrate`, renames its keys. A program
//! of version 4 that still runs then gets errors and changes nothing. A program of this
//! version fails with `Version` after a migration to a later one. Its leases stay until they
//! expire, and no key is lost.
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
//! atomic. Batches have a result for each key. A lease returns the keys of the nodes that
//! answer. Calls about the whole queue, such as
//! [`stats`](requeue_store::Store::stats), fail if one node does.
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
//! Use `rediss://`, `rediss-cluster://` or `rediss+sentinel://`, see [`RedisStore::builder`]. The crate uses ring,
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
