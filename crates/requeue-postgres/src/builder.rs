//! How a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use requeue_store::{EngineClock, Error, ErrorKind};

use crate::address::Address;
use crate::pool::{Pool, Terms};
use crate::schema::Schema;
use crate::session::Session;
use crate::store::PostgresStore;

/// What is on disk when a call is answered, and so what a crash of the server can undo.
///
/// The server writes what it does in one order, and a crash takes away the end of that: all
/// that came after some moment, and nothing before it. What is on disk brings all that came
/// before with it, whoever did that. If another server takes over, what it had not received
/// is what was not on disk.
///
/// | undone | what comes of it |
/// |---|---|
/// | an add, a revival | **the run does not happen** |
/// | `remove`, `forget`, `drop_dead`, `pause`, `resume` | as if nobody had asked |
/// | a lease | the key is ready: it is handed out again with another token, and whoever has it is refused |
/// | an extension | the lease may run out: the same |
/// | an end that went well | the key is processing until its lease runs out, and runs once more |
/// | an end with a retry, a release, a reclaim | the same, so it may come earlier or later than it was told; its failure is not counted |
/// | a bury | the same, and it is not dead |
/// | an event of the shared rate | it may be let through once more |
///
/// A lease that runs out counts against
/// [`max_deliveries`](requeue_store::LeaseRequest::max_deliveries), also if its end was
/// undone. No token is given out twice in any case, and a key that was dirty still is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// What the server is set to; as PostgreSQL comes, everything: nothing is undone that
    /// was answered.
    #[default]
    Server,
    /// What somebody asked for is on disk, as far as the server is set to that: adds and
    /// all else in the first two rows above. Leases, extensions, ends, reclaims and what is
    /// moved because it is due are not: those of the last moments, about half a second, may
    /// be undone. No run is lost by that.
    Adds,
    /// Nothing: whatever was answered in the last moments may be undone, adds among it.
    /// Calls are quicker and cost less.
    Relaxed,
}

/// The settings of a [`PostgresStore`] that is to be opened; made by
/// [`PostgresStore::builder`].
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

/// What is done if there is no queue of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Makes,
    Fails,
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
            absence: Absence::Makes,
            clock: None,
        }
    }

    /// The name of the queue, `default` unless told. It is made if it is not there.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// The schema that the tables are in, `requeue` unless told. It is made if it is not
    /// there.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// The most connections for calls, 8 unless told; at least one. Each is made when it
    /// is needed. One more listens once somebody waits for a key.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// How long the server may take for a call, 30 seconds unless told.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// What is on disk when a call is answered: what the server says, unless told.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Makes no queue, and no tables: a queue of this name must be there. For whoever only
    /// looks at a queue, so that a mistyped name leaves nothing behind.
    pub fn must_exist(mut self) -> Self {
        self.absence = Absence::Fails;
        self
    }

    /// A clock instead of the server's, for tests.
    pub fn clock(mut self, clock: EngineClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Connects, makes or migrates the tables if they are missing or old, and opens the
    /// queue.
    ///
    /// The connections belong to the runtime that this is called in. If the address has no
    /// password, that of the environment's `PGPASSWORD` is taken.
    ///
    /// # Errors
    ///
    /// | kind | what |
    /// |---|---|
    /// | [`ErrorKind::Invalid`] | the address cannot be read, or names no database of the server; there is no queue that [`must_exist`](Self::must_exist); the schema's name has other letters than `a` to `z`, digits and `_` |
    /// | [`ErrorKind::Unavailable`] | the server cannot be reached, or is not ready |
    /// | [`ErrorKind::Denied`] | the user, the password, or the user's rights |
    /// | [`ErrorKind::Version`] | the server is older than 13, or the tables are newer than this program |
    pub async fn open(self) -> Result<PostgresStore, Error> {
        let address = Address::parse(&self.url)?;
        let terms = Terms {
            schema: Schema::named(&self.schema)?,
            address,
            connections: self.connections,
            timeout: self.timeout,
            durability: self.durability,
        };
        let mut session = terms.connect_to_open().await?;
        let place = format!("PostgreSQL at {}, queue {:?}", terms.address, self.queue);
        if self.absence == Absence::Fails {
            refuse_absent(&mut session, &terms, &self.queue).await?;
        }
        terms.schema.prepare(&mut session, &terms.address).await?;
        let queue = queue_id(&mut session, &terms, &self.queue, &place).await?;
        let session = terms.opened(session).await?;
        let pool = Arc::new(Pool::new(terms, place, session));
        Ok(PostgresStore::new(pool, queue, self.clock))
    }
}

/// Refuses a queue that is not there.
async fn refuse_absent(
    session: &mut Session,
    terms: &Terms,
    name: &str,
) -> Result<(), Error> {
    let place = format!("PostgreSQL at {}", terms.address);
    let schema = terms.schema.quoted();
    let text = format!("select exists (select from {schema}.queue where name = $1)");
    let answer = session.client().query_one(&text, &[&name]).await;
    let is_there = match answer.and_then(|row| row.try_get(0)) {
        Err(error) if crate::failure::is_absence(&error) => false,
        is_there => {
            is_there.map_err(|error| crate::failure::of_call(error, "opening", &place))?
        }
    };
    if is_there {
        return Ok(());
    }
    let text = format!(
        "no queue {name} on {place}: expected one that somebody has added keys to or \
         worked on"
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// The number of the queue, which is made if it is not there.
async fn queue_id(
    session: &mut Session,
    terms: &Terms,
    name: &str,
    place: &str,
) -> Result<i32, Error> {
    if name.contains('\0') {
        let text = format!("the queue {name:?} cannot be used: its name has a zero byte");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let params = params![name.to_owned()];
    let rows = session.call(terms, "queue_id", &params).await;
    let id = rows.and_then(|rows| match rows.first() {
        Some(row) => row.try_get(0),
        None => Ok(None),
    });
    let id: Option<i32> =
        id.map_err(|error| crate::failure::of_call(error, "opening", place))?;
    id.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{place} has no number")))
}

/// Without the password that the address may hold.
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
    fn a_builder_does_not_show_the_password() {
        let builder = PostgresStore::builder("postgres://me:secret@db/app");
        let text = format!("{builder:?}");
        assert!(text.contains("db:5432/app") && !text.contains("secret"), "{text}");
    }
}
