//! A store for [`requeue`] queues in PostgreSQL 13 or newer.
//!
//! Many machines share a queue, a crash of the server loses nothing that was acknowledged,
//! and keys can be added inside your own transactions.
//!
//! ```no_run
//! use requeue_postgres::PostgresStore;
//! use requeue_store::SharedQueue;
//!
//! # async fn example() -> Result<(), requeue_store::Error> {
//! let store = PostgresStore::builder("postgres://me:password@localhost/app")
//!     .queue("mail")
//!     .open()
//!     .await?;
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
//! Programs work with a [`SharedQueue`](requeue_store::SharedQueue), which is built on the
//! store.
//!
//! # Adding inside your own transaction
//!
//! [`PostgresStore::add_in`] adds a key if and when your transaction commits. In any other
//! language, call a function:
//!
//! ```sql
//! begin;
//! insert into orders values (7, 'two chairs');
//! select requeue.add('mail', 'order-7');                        -- now
//! select requeue.add('mail', 'order-7', delay => '5 minutes');  -- or later
//! select requeue.add('mail', 'order-7', priority => 10);        -- or before others
//! commit;
//! select requeue.wake('mail');  -- workers look at once, not within a second
//! ```
//!
//! While your transaction is open, it locks the keys that it added. All other keys continue,
//! also those in the same batch. A call waits a quarter of a second for a locked key; then it
//! fails with [`ErrorKind::Busy`](requeue_store::ErrorKind::Busy). Repeat it; a `SharedQueue`
//! does. Rare calls for a single key, such as [`remove`](requeue_store::Store::remove), are
//! repeated until the [timeout](PostgresStoreBuilder::timeout). If your transaction stays
//! open for longer than a lease, the worker that processes its key loses the lease.
//!
//! # What is in the database
//!
//! One schema, `requeue` by default, with one row per key and one function per verb. One
//! column orders the keys, by priority and then by position. A queue without priorities
//! costs nothing extra. All times are microseconds of the server's clock.
//!
//! Opening a store creates a missing schema. It never changes a schema of another
//! version: [`PostgresStoreBuilder::migrate`] does, or the command `requeue migrate`. Programs
//! of the version before keep working after a migration.
//!
//! # Permissions
//!
//! The owner of the schema creates and migrates it. Other users need only these permissions:
//!
#![doc = concat!("```sql\n", include_str!("../sql/grants.sql"), "```")]
//!
//! # Durability
//!
//! With the default settings of PostgreSQL a crash loses nothing. [`Durability::Adds`] is
//! faster, but a crash may undo the last leases and finishes: some keys run once more, and
//! none is lost. [`Durability::Relaxed`] may lose the last adds too.
//!
//! # Waiting
//!
//! Waiting workers are woken by `NOTIFY`, over one connection per store. Your transactions
//! send no notification, and no store sends one while all workers are busy. A process sends
//! at most ten at once and 250 per second. A worker without notifications looks about once
//! a second.
//!
//! # Several servers
//!
//! An address may name several hosts, `postgres://me@one,two/app`. The store uses the first
//! one that accepts writes, unless `target_session_attrs` says otherwise. If its server
//! becomes a standby, it looks for another one.
//!
//! # Poolers
//!
//! If a pooler such as `PgBouncer` assigns connections by transaction, add `pgbouncer=true` to
//! the address. The store then uses neither prepared statements nor settings of a connection.
//! Notifications cannot arrive through such a pooler, so waiting workers look every 100
//! milliseconds.
//!
//! # TLS
//!
//! `sslmode` in the address has the meaning it has in libpq, except that without it
//! connections are not encrypted. Only `verify-full` verifies the identity of the server:
//!
//! ```text
//! postgres://me:password@db.example/app?sslmode=verify-full
//! postgres://me:password@db.example/app?sslmode=verify-full&sslrootcert=/etc/our-ca.pem
//! ```
//!
//! Trusted authorities are those of the operating system, or those in the file
//! `sslrootcert`. With `require` and no such file, the certificate is not verified.
//! `sslcert` and `sslkey` are the files of a client certificate and its private key, in PEM
//! format; the key must be readable by its owner only. Without the feature `tls`, an address
//! that requires TLS is rejected.
//!
//! # Password
//!
//! If the address has no password, that is the environment variable `PGPASSWORD`, or the
//! entry for the host, port, database and user in the password file of libpq: `passfile` in
//! the address, `PGPASSFILE`, or `~/.pgpass`. The file is ignored if other users can read
//! it. It is read for each connection, so a store finds a new password by itself.
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The parameters of an SQL function.
macro_rules! params {
    ($($param:expr),* $(,)?) => {
        vec![$($crate::param::Param::new($param)),*]
    };
}

mod add_batch;
mod address;
mod ageing;
mod builder;
mod client;
mod error;
mod finish_batch;
mod inspect;
mod lease;
mod number;
mod param;
mod params;
mod password;
mod pool;
mod schema;
mod session;
mod ssl;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod wake;
mod watermark;

pub use builder::{Durability, PostgresStoreBuilder};
pub use store::PostgresStore;

use number::{duration, index, number, random, signed};
