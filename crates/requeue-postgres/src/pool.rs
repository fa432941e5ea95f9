//! A pool of connections, opened on demand.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use requeue::{Clock, SystemClock};
use requeue_store::{Error, ErrorKind};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Row;

use crate::address::Address;
use crate::builder::Durability;
use crate::error;
use crate::schema::Schema;
use crate::session::{Param, Session, call_text};

/// How often a call is repeated after a deadlock or a serialization failure.
const COLLISIONS: usize = 5;

/// How much longer than the server the client waits. The server's own timeout is better: it
/// guarantees that nothing changed.
const GRACE: Duration = Duration::from_secs(1);

/// Calls whose commit [`Durability::Adds`] does not wait for: if one is lost, its keys run
/// again by themselves. Each returns one row.
const RELAXED_CALLS: [&str; 5] = ["lease", "extend", "finish", "reclaim", "expire"];

/// How long a call waits for each lock. Calls of stores hold one for a few milliseconds, as
/// long as a commit takes. A transaction of a user may hold one for hours, and a call that
/// waits for it occupies a connection and delays the other keys of its batch.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// Calls that are not repeated after a lock timeout: callers split the batch, until only
/// the locked keys wait.
const SPLIT_BY_CALLER: [&str; 5] =
    ["add_keys", "add_and_wake", "add_rate_limited", "extend", "finish"];

/// How connections are opened and used.
#[derive(Clone, Debug)]
pub(crate) struct PoolOptions {
    pub(crate) address: Address,
    pub(crate) schema: Schema,
    pub(crate) connections: usize,
    pub(crate) timeout: Duration,
    pub(crate) durability: Durability,
}

impl PoolOptions {
    /// Settings of every connection of this store.
    fn settings(&self) -> String {
        let timeout = self.timeout.as_millis().clamp(1, i32::MAX as u128);
        let relaxed = self.durability == Durability::Relaxed;
        let commit = if relaxed { "set synchronous_commit = off;" } else { "" };
        format!("set statement_timeout = {timeout};{commit}")
    }

    /// Settings of connections for calls. The lock timeout is shorter than that of the call,
    /// so that a call reports a lock as such.
    fn lock_settings(&self) -> String {
        let timeout = LOCK_TIMEOUT.min(self.timeout / 2).as_millis().max(1);
        format!("set lock_timeout = {timeout};")
    }

    /// Returns the statement that calls an SQL function.
    ///
    /// It sets `synchronous_commit` for this transaction. A setting of the function itself
    /// would end with the function, before the commit.
    pub(crate) fn statement(&self, name: &str, params: usize) -> String {
        let text = call_text(self.schema.quoted(), name, params);
        if self.durability == Durability::Adds && RELAXED_CALLS.contains(&name) {
            return text + " where set_config('synchronous_commit', 'off', true) = 'off'";
        }
        text
    }

    /// Opens a connection for calls.
    pub(crate) async fn connect(&self) -> Result<Session, Error> {
        self.connect_with(self.settings() + &self.lock_settings()).await
    }

    /// Opens the connection that opens the store. It waits for a migration by another
    /// program for as long as a call may take.
    pub(crate) async fn connect_to_open(&self) -> Result<Session, Error> {
        self.connect_with(self.settings()).await
    }

    /// Turns the connection that opened the store into one for calls.
    pub(crate) async fn opened(&self, session: Session) -> Result<Session, Error> {
        session.set(&self.address, &self.lock_settings()).await?;
        Ok(session)
    }

    async fn connect_with(&self, settings: String) -> Result<Session, Error> {
        let session = Session::open(&self.address, &settings);
        tokio::time::timeout(self.timeout, session)
            .await
            .unwrap_or_else(|_| Err(error::of_silent_server(&self.address)))
    }
}

/// The connections of one store.
pub(crate) struct Pool {
    options: PoolOptions,
    /// The address and the queue, for people.
    name: String,
    permits: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Pool {
    /// Creates a pool with one connection.
    pub(crate) fn new(options: PoolOptions, name: String, first: Session) -> Self {
        let permits = Semaphore::new(options.connections);
        Self { options, name, permits, idle: Mutex::new(vec![first]) }
    }

    pub(crate) fn options(&self) -> &PoolOptions {
        &self.options
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Calls an SQL function. Repeats it after a deadlock, and after a lock timeout until
    /// the timeout of the call.
    pub(crate) async fn call(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, Error> {
        let mut collisions = 0;
        let begun = SystemClock.now();
        loop {
            let mut session = self.take().await?;
            let call = session.call(&self.options, name, params);
            let Ok(answer) =
                tokio::time::timeout(self.options.timeout + GRACE, call).await
            else {
                session.discard();
                return Err(error::of_silence(name, &self.name));
            };
            match answer {
                Ok(rows) => return Ok(rows),
                Err(error) if error::is_collision(&error) && collisions < COLLISIONS => {
                    collisions += 1;
                }
                Err(error) if error::is_lock_timeout(&error) => {
                    if name == "lease" {
                        // The connection may hold the advisory lock of the tokens.
                        session.discard();
                    }
                    let is_over = begun.elapsed() >= self.options.timeout;
                    if is_over || SPLIT_BY_CALLER.contains(&name) {
                        return Err(error::of_call(error, name, &self.name));
                    }
                }
                Err(error) => {
                    // The connection may be broken.
                    session.discard();
                    return Err(error::of_call(error, name, &self.name));
                }
            }
        }
    }

    /// Calls an SQL function that returns one row.
    pub(crate) async fn call_one(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Row, Error> {
        let rows = self.call(name, params).await?;
        let row = rows.into_iter().next();
        row.ok_or_else(|| self.unreadable(name, "no row came back"))
    }

    /// Calls an idempotent SQL function, once more if the connection is lost.
    pub(crate) async fn call_again(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, Error> {
        match self.call(name, params).await {
            Err(error) if error.kind() == ErrorKind::Unknown => {
                self.call(name, params).await
            }
            answer => answer,
        }
    }

    /// Returns the error for an answer that cannot be read.
    pub(crate) fn unreadable(&self, name: &str, what: impl fmt::Display) -> Error {
        let text = format!("{name} on {}: the answer cannot be read: {what}", self.name);
        Error::new(ErrorKind::Corrupt, text)
    }

    async fn take(&self) -> Result<PooledSession<'_>, Error> {
        let permit = self.permits.acquire().await;
        let permit = permit.expect("the semaphore of a pool is never closed");
        let session = match self.pop() {
            Some(session) => session,
            None => self.options.connect().await?,
        };
        Ok(PooledSession { pool: self, session: Some(session), _permit: permit })
    }

    fn pop(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(session) = idle.pop() {
            if !session.is_closed() {
                return Some(session);
            }
        }
        None
    }

    fn push(&self, session: Session) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(session);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A connection that returns to its pool when dropped, even in the middle of a call: the
/// driver then reads and drops the answer.
struct PooledSession<'a> {
    pool: &'a Pool,
    session: Option<Session>,
    _permit: SemaphorePermit<'a>,
}

impl PooledSession<'_> {
    /// Closes the connection instead of returning it.
    fn discard(mut self) {
        self.session = None;
    }
}

impl Deref for PooledSession<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
            .as_ref()
            .expect("a session is present until it is discarded or returned")
    }
}

impl DerefMut for PooledSession<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
            .as_mut()
            .expect("a session is present until it is discarded or returned")
    }
}

impl Drop for PooledSession<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            if !session.is_closed() {
                self.pool.push(session);
            }
        }
    }
}
