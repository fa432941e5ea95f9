//! The builder, which opens a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use requeue_store::{EngineClock, Error, ErrorKind, Migration};
use tokio_postgres::types::Type;

use crate::address::Address;
use crate::pool::{Pool, PoolOptions};
use crate::schema::Schema;
use crate::session::Session;
use crate::store::PostgresStore;

/// Which calls are on disk when they return, and so which ones a crash of the server undoes.
///
/// The server writes all changes in one order. A crash undoes the changes after some moment,
/// and none before it. If a replica takes over, the changes that it had not received are
/// undone.
///
/// | undone | effect |
/// |---|---|
/// | an add, a revival | **the run does not happen** |
/// | `remove`, `forget`, `drop_dead`, `pause`, `resume` | as if it was never called |
/// | a lease | the key is ready and leased again with another token; the first holder cannot finish it |
/// | an extension | the lease may expire, with the same effect |
/// | a finish with success | the key is processing until its lease expires, and runs once more |
/// | a finish with a retry, a release, a reclaim | the same: it may run earlier or later; the failure is not counted |
/// | giving up | the same: the key is not dead |
/// | an event of the shared rate | it may be allowed once more |
///
/// An expired lease counts towards
/// [`max_deliveries`](requeue_store::LeaseRequest::max_deliveries), even if its finish was
/// undone. In no case is a token used twice, and a dirty key stays dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Waits as the server is configured. By default a crash of PostgreSQL undoes nothing
    /// that has returned.
    #[default]
    Server,
    /// Waits for adds and the other calls in the first two rows above, as the server is
    /// configured. Does not wait for leases, extensions, finishes, reclaims and moved keys:
    /// a crash may undo the last half second of those. It loses no run.
    Adds,
    /// Waits for nothing: a crash may undo the last half second, including adds. Calls are
    /// faster and cost less.
    Relaxed,
}

/// Opens a [`PostgresStore`]. Created by [`PostgresStore::builder`].
#[derive(Clone)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct PostgresStoreBuilder {
    url: String,
    queue: String,
    schema: String,
    connections: usize,
    timeout: Duration,
    durability: Durability,
    absence: Absence,
    clock: Option<EngineClock>,
}

/// What to do if the queue does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    Create,
    Fail,
}

impl PostgresStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            queue: "default".to_owned(),
            schema: "requeue".to_owned(),
            connections: 8,
            timeout: Duration::from_secs(30),
            durability: Durability::default(),
            absence: Absence::Create,
            clock: None,
        }
    }

    /// Sets the name of the queue; `default` by default. Opening creates it if needed.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// Sets the schema of the tables; `requeue` by default. Opening creates it if it does not
    /// exist.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the maximum number of connections for calls; 8 by default, at least 1. They are
    /// opened on demand. One more is for heartbeats, and one listens for notifications once
    /// a worker waits.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Sets how long a call may take; 30 seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets which calls are on disk when they return; [`Durability::Server`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Requires that the queue exists: opening creates neither a queue nor tables. For
    /// programs that only inspect a queue, so that a mistyped name creates nothing.
    pub fn must_exist(mut self) -> Self {
        self.absence = Absence::Fail;
        self
    }

    /// Replaces the server's clock, for tests.
    pub fn clock(mut self, clock: EngineClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Connects, creates the tables if there are none, and opens the queue.
    ///
    /// Tables of an older version are not changed: see [`migrate`](Self::migrate). The
    /// connections belong to the current tokio runtime.
    ///
    /// # Errors
    ///
    /// | kind | cause |
    /// |---|---|
    /// | [`ErrorKind::Invalid`] | the address is invalid; the database does not exist, nor a queue that [`must_exist`](Self::must_exist); the schema name has characters other than `a` to `z`, digits and `_` |
    /// | [`ErrorKind::Unavailable`] | the server cannot be reached, or is not ready |
    /// | [`ErrorKind::ReadOnly`] | no host of the address accepts writes |
    /// | [`ErrorKind::Denied`] | the user or the password is wrong, or the user lacks a permission |
    /// | [`ErrorKind::Version`] | the server is older than 13, or the tables are older or newer than this program supports |
    pub async fn open(self) -> Result<PostgresStore, Error> {
        let options = self.options()?;
        let mut session = options.connect_to_open().await?;
        let place = format!("PostgreSQL at {}, queue {:?}", options.address, self.queue);
        options.schema.prepare(&mut session, &options, self.absence).await?;
        if self.absence == Absence::Fail {
            check_exists(&mut session, &options, &self.queue).await?;
        }
        let queue = queue_id(&mut session, &options, &self.queue, &place).await?;
        let session = options.opened(session).await?;
        let pool = Arc::new(Pool::new(options, place, session));
        Ok(PostgresStore::new(pool, queue, self.clock))
    }

    /// Migrates the tables of all queues in the schema to the version of this program.
    ///
    /// With `dry_run` nothing is changed. Programs of the version before keep working
    /// during and after the migration; their calls wait for a moment. Everything is migrated
    /// in one transaction, so a failure changes nothing.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). [`ErrorKind::Invalid`] if the schema does not exist, and
    /// [`ErrorKind::Busy`] if open transactions hold keys until the
    /// [timeout](Self::timeout).
    pub async fn migrate(self, dry_run: bool) -> Result<Migration, Error> {
        let options = self.options()?;
        let mut session = options.connect_to_open().await?;
        options.schema.migrate(&mut session, &options, dry_run).await
    }

    fn options(&self) -> Result<PoolOptions, Error> {
        Ok(PoolOptions {
            schema: Schema::named(&self.schema)?,
            address: Address::parse(&self.url)?,
            connections: self.connections,
            timeout: self.timeout,
            durability: self.durability,
        })
    }
}

/// Fails if the queue does not exist.
async fn check_exists(
    session: &mut Session,
    options: &PoolOptions,
    name: &str,
) -> Result<(), Error> {
    let place = format!("PostgreSQL at {}", options.address);
    let schema = options.schema.quoted();
    let text = format!("select exists (select from {schema}.queue where name = $1)");
    let answer = session.client().query_typed_one(&text, &[(&name, Type::TEXT)]).await;
    let exists: bool = answer
        .and_then(|row| row.try_get(0))
        .map_err(|error| crate::error::of_call(error, "opening", &place))?;
    if exists {
        return Ok(());
    }
    let text =
        format!("queue {name:?} does not exist on {place}; adding a key creates it");
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Returns the id of the queue, and creates the queue if needed.
async fn queue_id(
    session: &mut Session,
    options: &PoolOptions,
    name: &str,
    place: &str,
) -> Result<i32, Error> {
    if name.contains('\0') {
        let text = format!("the queue name {name:?} contains a zero byte");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let params = params![name.to_owned()];
    let rows = session.call(options, "queue_id", &params).await;
    let id = rows.and_then(|rows| match rows.first() {
        Some(row) => row.try_get(0),
        None => Ok(None),
    });
    let id: Option<i32> =
        id.map_err(|error| crate::error::of_call(error, "opening", place))?;
    id.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{place} has no id")))
}

/// Omits the password of the address.
impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("address", &Address::parse(&self.url).ok())
            .field("queue", &self.queue)
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .field("timeout", &self.timeout)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_omits_the_password() {
        let builder = PostgresStore::builder("postgres://me:secret@db/app");
        let text = format!("{builder:?}");
        assert!(text.contains("db:5432/app") && !text.contains("secret"), "{text}");
    }
}
