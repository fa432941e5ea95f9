//! A few connections, made when they are needed and used again.

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
use crate::failure;
use crate::schema::Schema;
use crate::session::{Param, Session, call_text};

/// How often a call is sent again that the server undid because it collided with another.
const COLLISIONS: usize = 5;

/// How much longer than the server the client waits: the server's answer that a call took
/// too long is the better one, since it says that nothing was changed.
const GRACE: Duration = Duration::from_secs(1);

/// What [`Durability::Adds`] does not wait for: these take back a key, or give it out, and
/// plan nothing that would not come by itself. Each answers with one row.
const REPEATED: [&str; 5] = ["lease", "extend", "finish", "reclaim", "expire"];

/// How long a call waits for each lock that somebody else holds. Calls of stores hold one
/// for as long as a commit takes, a few milliseconds, and are waited for; a transaction of a
/// user may hold one for hours, and what waits for it keeps a connection, and in a batch all
/// other keys of that.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// What is not sent again if a lock is in its way: who called it asks for the keys in smaller
/// parts, until only those wait that are locked.
const CUT_BY_CALLER: [&str; 5] =
    ["add_keys", "add_and_wake", "add_rate_limited", "extend", "finish"];

/// How connections are made and used.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) address: Address,
    pub(crate) schema: Schema,
    pub(crate) connections: usize,
    pub(crate) timeout: Duration,
    pub(crate) durability: Durability,
}

impl Terms {
    /// What a connection is told besides what all are.
    fn settings(&self) -> String {
        let timeout = self.timeout.as_millis().clamp(1, i32::MAX as u128);
        let relaxed = self.durability == Durability::Relaxed;
        let commit = if relaxed { "set synchronous_commit = off;" } else { "" };
        format!("set statement_timeout = {timeout};{commit}")
    }

    /// What a connection for calls is told once the store is open. A call that was undone for
    /// a lock says so before its time is over, however short that is.
    fn lock_settings(&self) -> String {
        let timeout = LOCK_TIMEOUT.min(self.timeout / 2).as_millis().max(1);
        format!("set lock_timeout = {timeout};")
    }

    /// The statement that calls a function of the schema.
    ///
    /// What the commit waits for is set in passing, for this transaction only: the setting
    /// that a function has by itself would end with the function, before the commit.
    pub(crate) fn statement(&self, name: &str, params: usize) -> String {
        let text = call_text(self.schema.quoted(), name, params);
        if self.durability == Durability::Adds && REPEATED.contains(&name) {
            return text + " where set_config('synchronous_commit', 'off', true) = 'off'";
        }
        text
    }

    /// Makes a connection for calls, outside of any pool.
    pub(crate) async fn connect(&self) -> Result<Session, Error> {
        self.connect_with(self.settings() + &self.lock_settings()).await
    }

    /// Makes the connection that opens the store: it waits for others that migrate, and for
    /// what holds those up, as long as a call may take.
    pub(crate) async fn connect_to_open(&self) -> Result<Session, Error> {
        self.connect_with(self.settings()).await
    }

    /// Makes one for calls of the connection that opened the store.
    pub(crate) async fn opened(&self, session: Session) -> Result<Session, Error> {
        session.set(&self.address, &self.lock_settings()).await?;
        Ok(session)
    }

    async fn connect_with(&self, settings: String) -> Result<Session, Error> {
        let session = Session::open(&self.address, &settings);
        tokio::time::timeout(self.timeout, session).await.unwrap_or_else(|_| {
            let text = format!("PostgreSQL at {} does not answer", self.address);
            Err(Error::new(ErrorKind::Unavailable, text))
        })
    }
}

/// The connections of one store.
pub(crate) struct Pool {
    terms: Terms,
    /// What people are told this is.
    place: String,
    slots: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Pool {
    /// A pool with one connection to begin with.
    pub(crate) fn new(terms: Terms, place: String, first: Session) -> Self {
        let slots = Semaphore::new(terms.connections);
        Self { terms, place, slots, idle: Mutex::new(vec![first]) }
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Calls a function of the schema. What collides with another call is sent again, and so
    /// is what a lock was in the way of, until the time of a call is over.
    pub(crate) async fn call(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, Error> {
        let mut collisions = 0;
        let begun = SystemClock.now();
        loop {
            let mut session = self.take().await?;
            let call = session.call(&self.terms, name, params);
            let Ok(answer) = tokio::time::timeout(self.terms.timeout + GRACE, call).await
            else {
                session.discard();
                return Err(failure::of_silence(name, &self.place));
            };
            match answer {
                Ok(rows) => return Ok(rows),
                Err(error)
                    if failure::is_collision(&error) && collisions < COLLISIONS =>
                {
                    collisions += 1;
                }
                Err(error) if failure::is_held_up(&error) => {
                    if name == "lease" {
                        // It may hold the lock of the tokens, which is the connection's.
                        session.discard();
                    }
                    let is_over = begun.elapsed() >= self.terms.timeout;
                    if is_over || CUT_BY_CALLER.contains(&name) {
                        return Err(failure::of_call(error, name, &self.place));
                    }
                }
                Err(error) => {
                    // The next call gets a connection that nothing went wrong on.
                    session.discard();
                    return Err(failure::of_call(error, name, &self.place));
                }
            }
        }
    }

    /// The same for a function that answers with one row.
    pub(crate) async fn call_one(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Row, Error> {
        let rows = self.call(name, params).await?;
        let row = rows.into_iter().next();
        row.ok_or_else(|| self.unreadable(name, "no row came back"))
    }

    /// The same for one that only tells, or does what can be done twice: if the connection
    /// is lost, once more.
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

    /// An answer that makes no sense.
    pub(crate) fn unreadable(&self, name: &str, what: impl fmt::Display) -> Error {
        let text = format!("{name} on {}: the answer cannot be read: {what}", self.place);
        Error::new(ErrorKind::Corrupt, text)
    }

    async fn take(&self) -> Result<Borrowed<'_>, Error> {
        let slot = self.slots.acquire().await;
        let slot = slot.expect("the semaphore of a pool is never closed");
        let session = match self.pop() {
            Some(session) => session,
            None => self.terms.connect().await?,
        };
        Ok(Borrowed { pool: self, session: Some(session), _slot: slot })
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
        f.debug_struct("Pool").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// A connection that goes back to its pool when this is dropped: also in the middle of a
/// call, whose answer the driver then reads and drops.
struct Borrowed<'a> {
    pool: &'a Pool,
    session: Option<Session>,
    _slot: SemaphorePermit<'a>,
}

impl Borrowed<'_> {
    /// Closes the connection instead.
    fn discard(mut self) {
        self.session = None;
    }
}

impl Deref for Borrowed<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a session is there until it is given back")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("a session is there until it is given back")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            if !session.is_closed() {
                self.pool.push(session);
            }
        }
    }
}
