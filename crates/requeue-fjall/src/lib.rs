//! The queue of [`requeue`](https://docs.rs/requeue) on disk, in the process that uses it.
//!
//! For a program that runs on one machine and must not lose keys when it dies: no server,
//! one folder. Nothing is acknowledged before it is on disk, and calls that come while the
//! disk is busy share its next write, so many at once cost hardly more than one.
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
//! while let Some(lease) = queue.try_get().await? { // or get(), which waits
//!     assert_eq!(lease.key(), "mail/7");
//!     lease.succeed().await?; // on disk as well; or retry()
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is on disk when
//!
//! | call | answered | after `kill -9` | after a power cut |
//! |---|---|---|---|
//! | `add`, `finish`, `reclaim`, `forget`, `remove`, `revive`, `drop_dead`, `pause`, `resume` | once it is on disk | kept | kept |
//! | the same, if it changed nothing | once what it found is on disk | kept | kept |
//! | `lease`, `expire`, and what `look` and `stats` move | at once | kept, but for the last moments | kept with the next call that waits |
//!
//! What the last row may lose costs nobody a key. A grant is written down to count how often
//! a key was handed out: see [`max_deliveries`](requeue_store::LeaseRequest::max_deliveries).
//! It is handed to the system with the next write, which is under way when the lease is
//! answered; a key that brings its process down faster than that may be counted once less.
//! When the process is gone, so is whoever held a lease: in the next life those leases have
//! run out, and the first who asks for keys takes them over.
//!
//! Tokens grow from life to life, also if the clock was set back in between: see
//! [`Token`](requeue_store::Token).
//!
//! # What it does not keep
//!
//! Who was there ([`workers`](requeue_store::Store::workers)), and the shared
//! [`Rate`](requeue_store::Rate) only as it was with the last write.
//!
//! # When the disk fails
//!
//! After a write or an fsync that failed nobody knows what is on disk, and another fsync
//! would not tell. So the store takes nothing more: every call, and those that wait, get
//! [`ErrorKind::Poisoned`](requeue_store::ErrorKind::Poisoned). Open it anew to see what was
//! kept; what was acknowledged is.
//!
//! # In a debug build
//!
//! fjall asserts, in debug builds only, that the last record of a journal is whole, before it
//! finds out that a crash has torn it. A folder after such a crash is then refused as damaged
//! by a debug build, and opened by a release build, which loses nothing that was
//! acknowledged. If your tests crash processes, tell cargo:
//!
//! ```toml
//! [profile.dev.package.fjall]
//! debug-assertions = false
//! ```
//!
//! # One process
//!
//! A folder is open once. Another process, or a second [`open`](FjallStoreBuilder::open), gets
//! [`ErrorKind::Conflict`](requeue_store::ErrorKind::Conflict) until the first store is
//! [closed](FjallStore::close), or it and its clones are dropped.

mod builder;
mod committer;
mod engine;
mod group;
mod journal;
mod ledger;
mod outcome;
mod place;
mod record;
mod store;

pub use builder::FjallStoreBuilder;
pub use store::FjallStore;
