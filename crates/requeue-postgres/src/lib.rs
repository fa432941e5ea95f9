//! The queue of [`requeue`], kept in PostgreSQL (13 or newer): shared by many machines,
//! nothing lost that was acknowledged, and added to inside your own transactions.
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
//!     println!("{} is to be sent", lease.key());
//!     lease.succeed().await?; // or retry("why")
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The store knows keys and leases. What a program works with stands on top of it: the
//! [`SharedQueue`](requeue_store::SharedQueue).
//!
//! # Inside your own transaction
//!
//! [`PostgresStore::add_in`] adds a key if and when your transaction commits. Any language
//! can do the same with a function:
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
//! While your transaction stays open, it has the keys that it added to itself, and all other
//! keys go on. A call waits for such a key for a quarter of a second; then the server undoes
//! it. The end of a lease is answered with [`Finished::Busy`](requeue_store::Finished::Busy),
//! and adds and extensions fail with [`ErrorKind::Busy`](requeue_store::ErrorKind::Busy): say
//! it again, a batch in smaller parts, as a `SharedQueue` does. What people ask for, such as
//! [`remove`](requeue_store::Store::remove), is sent again until the
//! [timeout](PostgresStoreBuilder::timeout) is over. If your transaction stays open for longer
//! than a lease, whoever works on its key loses that.
//!
//! # What is in the database
//!
//! One schema, `requeue` unless told, with a row for each key whatever its state, and the
//! functions that are the verbs of a queue. The order of the line is one column, in which
//! the priority comes before the place; a queue that has only ever had priority 0 costs
//! nothing for that. Opening a store makes what is missing and
//! migrates what is older, under a lock; tables that are newer than the program are
//! refused. All times are microseconds of the server's clock.
//!
//! The user needs the right to create the schema the first time, and after that only to
//! use it. Calls that the server undoes because of a deadlock are sent again.
//!
//! # What is lost when the server crashes
//!
//! Nothing, as PostgreSQL comes. [`Durability::Adds`] gives up the leases and ends of the
//! last moments for speed, which costs a run more but none less, and
//! [`Durability::Relaxed`] the adds too.
//!
//! # Waiting
//!
//! A worker that waits is woken by `NOTIFY`, on one connection for each store. No
//! notification is sent from your transactions, none while all workers are busy, and at
//! most ten at once and a hundred in a second from each process. A worker that hears
//! nothing looks about once in a second.
//!
//! # TLS
//!
//! `sslmode` in the address means what it means to PostgreSQL's own programs, except that
//! without it connections are not encrypted. Only `verify-full` makes sure who answers:
//!
//! ```text
//! postgres://me:password@db.example/app?sslmode=verify-full
//! postgres://me:password@db.example/app?sslmode=verify-full&sslrootcert=/etc/our-ca.pem
//! ```
//!
//! Authorities are those that the machine trusts, or those in the file `sslrootcert`. With
//! `require` the certificate is not checked at all unless there is such a file. Without the
//! feature `tls`, an address that demands TLS is refused. There are no client certificates.
//!
//! # What there is not
//!
//! A pooler that gives each transaction another connection cannot be used: statements are
//! prepared, and one connection listens.
#![cfg_attr(docsrs, feature(doc_cfg))]

/// What a function of the schema is given.
macro_rules! params {
    ($($param:expr),* $(,)?) => {
        vec![$(Box::new($param) as $crate::session::Param),*]
    };
}

mod add_batch;
mod address;
mod builder;
mod failure;
mod finish_batch;
mod grants;
mod low;
mod people;
mod pool;
mod schema;
mod session;
mod share;
mod ssl;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod units;
mod wake;

pub use builder::{Durability, PostgresStoreBuilder};
pub use store::PostgresStore;

use units::{duration, number, signed};
