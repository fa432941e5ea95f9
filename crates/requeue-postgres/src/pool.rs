//! A pool of connections, opened on demand.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_store::{Class, Error, ErrorKind};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Row;

use crate::address::Address;
use crate::builder::Durability;
use crate::error;
use crate::param::Param;
use crate::schema::Schema;
use crate::session::{Session, call_text};

/// How often a call is repeated after a deadlock or a serialization failure.
const COLLISIONS: usize = 5;

/// How much longer than the server the client waits. The server's own timeout is better: it
/// guarantees that nothing changed.
const GRACE: Duration = Duration::from_secs(1);

/// A call that is abandoned after this time makes all connections suspect that have not
/// answered since: a cut cable does not end a connection.
const SUSPICIOUS: Duration = Duration::from_millis(100);

/// Calls whose commit [`Durability::Adds`] does not wait for: if one is lost, its keys run
/// again by themselves. Each returns one row.
const RELAXED_CALLS: [&str; 7] =
    ["lease", "extend", "extend_each", "finish", "finish_each", "reclaim", "expire"];

/// How long a call waits for each lock. Calls of stores hold one for a few milliseconds, as
/// long as a commit takes. A transaction of a user may hold one for hours, and a call that
/// waits for it occupies a connection and delays the other keys of its batch.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Calls,
    /// Heartbeats never wait for the connections of calls, which may all be stuck.
    Heartbeat,
}

/// When to repeat a call that the server undid because a key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfLocked {
    /// Until the time limit of the call.
    Repeat,
    /// Not at all: the caller repeats it key by key.
    Fail,
}

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
    fn settings(&self) -> Vec<String> {
        let timeout = self.timeout.as_millis().clamp(1, i32::MAX as u128);
        let idle = (self.timeout + GRACE).as_millis().clamp(1, i32::MAX as u128);
        let mut settings = vec![
            format!("statement_timeout = {timeout}"),
            // Ends a transaction whose client has vanished, so that it holds no lock.
            format!("idle_in_transaction_session_timeout = {idle}"),
        ];
        if self.durability == Durability::Relaxed {
            settings.push("synchronous_commit = off".to_owned());
        }
        settings
    }

    /// Settings of connections for calls. The lock timeout is shorter than that of the call,
    /// so that a call reports a lock as such.
    fn call_settings(&self) -> Vec<String> {
        let timeout = LOCK_TIMEOUT.min(self.timeout / 2).as_millis().max(1);
        let mut settings = self.settings();
        settings.push(format!("lock_timeout = {timeout}"));
        settings
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
        self.connect_with(&self.call_settings()).await
    }

    /// Opens the connection that opens the store. It waits for another program that creates
    /// or migrates the schema for as long as a call may take.
    pub(crate) async fn connect_to_open(&self) -> Result<Session, Error> {
        self.connect_with(&self.settings()).await
    }

    /// Turns the connection that opened the store into one for calls.
    pub(crate) async fn opened(&self, mut session: Session) -> Result<Session, Error> {
        session.set(&self.address, &self.call_settings()).await?;
        Ok(session)
    }

    async fn connect_with(&self, settings: &[String]) -> Result<Session, Error> {
        let session = Session::open(&self.address, settings);
        tokio::time::timeout(self.timeout, session)
            .await
            .unwrap_or_else(|_| Err(error::of_silent_server(&self.address)))
    }
}

/// The connections of one store.
///
/// # Invariants
///
/// 1. A connection in `idle` is not in the middle of a call. A call that is dropped before
///    it is answered takes its connection with it.
/// 2. After a call that did not answer, no call uses a connection that has not answered
///    since that call began.
pub(crate) struct Pool {
    options: PoolOptions,
    /// The address and the queue, for people.
    name: String,
    call_permits: Semaphore,
    heartbeat_permits: Semaphore,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    sessions: Vec<Session>,
    /// Connections that have not answered since are not used again.
    trusted_since: Option<Instant>,
}

impl Pool {
    /// Creates a pool with one connection.
    pub(crate) fn new(options: PoolOptions, name: String, first: Session) -> Self {
        let call_permits = Semaphore::new(options.connections);
        let idle = Idle { sessions: vec![first], trusted_since: None };
        let (heartbeat_permits, idle) = (Semaphore::new(1), Mutex::new(idle));
        Self { options, name, call_permits, heartbeat_permits, idle }
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
        self.call_as(Use::Calls, IfLocked::Repeat, name, params).await
    }

    /// Calls an SQL function.
    pub(crate) async fn call_as(
        &self,
        purpose: Use,
        if_locked: IfLocked,
        name: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, Error> {
        let begun = SystemClock.now();
        let mut collisions = 0;
        loop {
            let mut session = self.take(purpose).await?;
            let Some(answer) = session.call(name, params).await else {
                return Err(error::of_silence(name, &self.name));
            };
            let error = match answer {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            };
            if error::is_collision(&error) && collisions < COLLISIONS {
                collisions += 1;
                continue;
            }
            let in_time = begun.elapsed() < self.options.timeout;
            if error::is_lock_timeout(&error) && if_locked == IfLocked::Repeat && in_time
            {
                continue;
            }
            return Err(self.failed(session, error, name).await);
        }
    }

    /// Classifies an error, and closes connections that are of no use after it.
    async fn failed(
        &self,
        mut session: PooledSession<'_>,
        error: tokio_postgres::Error,
        name: &str,
    ) -> Error {
        if error::is_absence(&error) {
            if let Some(newer) = self.options.schema.newer(session.get()).await {
                session.discard();
                return error::of_newer_schema(error, name, &self.name, newer);
            }
        }
        let failure = error::of_call(error, name, &self.name);
        if failure.class() != Class::RetryHere {
            // The connection may be broken.
            session.discard();
        }
        if failure.kind() == ErrorKind::ReadOnly {
            // So are the others: another server accepts writes now.
            self.distrust(SystemClock.now());
        }
        failure
    }

    /// Calls an SQL function that returns one row.
    pub(crate) async fn call_one(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Row, Error> {
        self.one(self.call(name, params).await?, name)
    }

    /// Calls an SQL function that returns one row, and does not wait long for locked keys.
    pub(crate) async fn call_unlocked(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Row, Error> {
        self.one(self.call_as(Use::Calls, IfLocked::Fail, name, params).await?, name)
    }

    /// Returns the only row of an answer.
    pub(crate) fn one(&self, rows: Vec<Row>, name: &str) -> Result<Row, Error> {
        rows.into_iter().next().ok_or_else(|| self.unreadable(name, "no row came back"))
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

    async fn take(&self, purpose: Use) -> Result<PooledSession<'_>, Error> {
        let permits = match purpose {
            Use::Calls => &self.call_permits,
            Use::Heartbeat => &self.heartbeat_permits,
        };
        let permit = tokio::time::timeout(self.options.timeout, permits.acquire()).await;
        let Ok(permit) = permit else {
            let number = self.options.connections;
            let text = format!("all {number} connections of {} are in use", self.name);
            return Err(Error::new(ErrorKind::Unavailable, text));
        };
        let permit = permit.expect("the semaphore of a pool is never closed");
        let session = match self.pop() {
            Some(session) => session,
            None => self.options.connect().await?,
        };
        Ok(PooledSession {
            pool: self,
            session: Some(session),
            called: None,
            _permit: permit,
        })
    }

    fn pop(&self) -> Option<Session> {
        let mut idle = self.lock();
        while let Some(session) = idle.sessions.pop() {
            let is_trusted = idle.trusted_since.is_none_or(|at| session.answered() >= at);
            if is_trusted && !session.is_closed() {
                return Some(session);
            }
        }
        None
    }

    /// Makes connections suspect that have not answered since.
    fn distrust(&self, since: Instant) {
        let mut idle = self.lock();
        idle.trusted_since = idle.trusted_since.max(Some(since));
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A connection that returns to its pool when dropped, unless it is in the middle of a call.
struct PooledSession<'a> {
    pool: &'a Pool,
    session: Option<Session>,
    /// When the call began that has no answer yet.
    called: Option<Instant>,
    _permit: SemaphorePermit<'a>,
}

impl PooledSession<'_> {
    /// Calls an SQL function. Returns `None` if it is not answered in time.
    async fn call(
        &mut self,
        name: &'static str,
        params: &[Param],
    ) -> Option<Result<Vec<Row>, tokio_postgres::Error>> {
        self.called = Some(SystemClock.now());
        let (options, session) = (self.pool.options(), self.get());
        let call = session.call(options, name, params);
        let answer = tokio::time::timeout(options.timeout + GRACE, call).await.ok()?;
        self.called = None;
        Some(answer)
    }

    fn get(&mut self) -> &mut Session {
        self.session.as_mut().expect("a session is present until it is discarded")
    }

    /// Closes the connection instead of returning it.
    fn discard(mut self) {
        self.session = None;
    }
}

impl Drop for PooledSession<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        match self.called {
            Some(at) if at.elapsed() >= SUSPICIOUS => self.pool.distrust(at),
            Some(_) => {}
            None if session.is_closed() => {}
            None => self.pool.lock().sessions.push(session),
        }
    }
}
