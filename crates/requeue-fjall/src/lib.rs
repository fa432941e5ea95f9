//! Embedded, durable store for [`requeue`](https://docs.rs/requeue): a queue in a folder.
//!
//! Use it for a program that runs on one machine and must not lose keys when it crashes.
//! It needs no server. Every add and every finish is on disk before it is acknowledged.
//! Calls made while the disk is busy share the next write (group commit): a hundred
//! concurrent calls cost little more than one.
//!
//! ```
//! use requeue_fjall::FjallStore;
//! use requeue_store::SharedQueue;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("mail");
//! let queue = SharedQueue::<String, _>::new(FjallStore::open(&path)?);
//! queue.add("mail/7".to_owned()).await?; // on disk
//! while let Some(lease) = queue.try_get().await? { // get() waits for a key
//!     assert_eq!(lease.key(), "mail/7");
//!     lease.succeed().await?; // on disk; retry() for a failure
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! | call | returns | after `kill -9` | after a power failure |
//! |---|---|---|---|
//! | `add`, `finish`, `reclaim`, `forget`, `remove`, `revive`, `drop_dead`, `pause`, `resume` | when the change is on disk | kept | kept |
//! | the same calls, if they change nothing | when the state they report is on disk | kept | kept |
//! | `lease`, `expire`, and delays that end during `look` and `stats` | without waiting for the disk | kept, except the last few | kept up to the last durable write |
//!
//! Losing changes of the last row never loses a key. A delivery is recorded only to count
//! deliveries: see [`max_deliveries`](requeue_store::LeaseRequest::max_deliveries). It is
//! part of the next write, which `lease` starts but does not wait for. If a key crashes its
//! process sooner than that, one delivery may be missing from the count.
//!
//! Leases end with the process. After a restart they have expired, and the next call to
//! `lease` delivers their keys again.
//!
//! Tokens keep growing across restarts, even if the system clock was set back: see
//! [`Token`](requeue_store::Token).
//!
//! # What is not stored
//!
//! The list of [`workers`](requeue_store::Store::workers) is not stored. The shared
//! [`Rate`](requeue_store::Rate) and the shared limiters are stored as of the last write.
//!
//! # When the disk is full
//!
//! The store keeps 4 MB of disk space for this case, in the file `reserve`. Calls in progress
//! use it and succeed. Later calls that change something fail with
//! [`ErrorKind::Full`](requeue_store::ErrorKind::Full), and change nothing, until the reserve
//! can be created again. Heartbeats, and calls that only look, still work. Calls in progress
//! whose changes do not fit wait until there is space.
//!
//! # When the disk fails
//!
//! After any other failed write, or a failed fsync, the content of the disk is unknown, and another fsync
//! would not reveal it. The store therefore stops: pending and later calls fail with
//! [`ErrorKind::Poisoned`](requeue_store::ErrorKind::Poisoned). Open the store again to
//! continue; it holds every acknowledged change.
//!
//! # Debug builds
//!
//! A crash can leave a torn record at the end of fjall's journal. A release build detects
//! and discards it, and no acknowledged change is lost. A debug build of fjall runs into an
//! assertion first, so the store reports the folder as damaged. If your tests kill
//! processes, disable fjall's debug assertions:
//!
//! ```toml
//! [profile.dev.package.fjall]
//! debug-assertions = false
//! ```
//!
//! # Versions
//!
//! Every record has a format version. A store opens a folder only if all records have the
//! current one, 3. A folder of an older version is refused with
//! [`ErrorKind::Version`](requeue_store::ErrorKind::Version) and left unchanged, until
//! [`FjallStoreBuilder::migrate`] or `requeue migrate` has rewritten it.
//!
//! # One process at a time
//!
//! Only one store can have a folder open. Another process, or a second
//! [`open`](FjallStoreBuilder::open), gets
//! [`ErrorKind::Conflict`](requeue_store::ErrorKind::Conflict) until the first store is
//! [closed](FjallStore::close) or its last clone is dropped.

mod builder;
mod commit;
mod committer;
mod fjall_journal;
mod folder;
mod group;
mod journal;
mod journaled_machine;
mod migration;
mod record;
mod reserve;
mod store;

pub use builder::FjallStoreBuilder;
pub use store::FjallStore;
