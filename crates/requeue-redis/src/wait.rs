//! Waiting for a key, on a connection of its own.
//!
//! Each partition has a mark in its part `wake`. Scripts set it when a first key comes into
//! an empty line, and when a lease leaves keys in it: so whoever takes the mark, and then
//! takes keys, passes it on. A blocking command takes it, and takes it once: one add wakes
//! one of all the processes that wait.
//!
//! # Invariants
//!
//! 1. The command runs only while somebody waits, or until it ends by itself. One runs at
//!    a time.
//! 2. A mark that was taken is given to one waiter. If none is left, it is put back.
//! 3. A waiter that was given one and does not return gives it on, by invariant 2.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use requeue_store::{Error, ErrorKind};
use tokio::sync::oneshot;

use crate::fault::{Stage, fault};
use crate::link::Link;

/// How long the blocking command lasts. When it ends, one waiter looks for keys: a mark
/// that went to a process which died with it costs the others no more than this. The same
/// as `UNWATCHED` in lease.lua.
const LASTS: Duration = Duration::from_secs(5);

type Woken = Result<(), Error>;

#[derive(Debug)]
pub(crate) struct Watch {
    link: Arc<Link>,
    /// The Redis keys of the marks.
    marks: Vec<String>,
    state: Mutex<Watching>,
}

#[derive(Debug, Default)]
struct Watching {
    waiters: VecDeque<oneshot::Sender<Woken>>,
    running: bool,
    connection: Option<Connection>,
}

struct Connection(MultiplexedConnection);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Watch {
    pub(crate) fn new(link: Arc<Link>, marks: Vec<String>) -> Arc<Self> {
        Arc::new(Self { link, marks, state: Mutex::default() })
    }

    /// Waits until a mark was taken, at most so long.
    pub(crate) async fn wait(self: &Arc<Self>, at_most: Duration) -> Result<(), Error> {
        let mut waiter = self.enlist();
        match tokio::time::timeout(at_most, &mut waiter.woken).await {
            Ok(Ok(woken)) => woken,
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    fn enlist(self: &Arc<Self>) -> Waiter {
        let (sender, woken) = oneshot::channel();
        let mut state = self.state();
        state.waiters.retain(|waiter| !waiter.is_closed());
        state.waiters.push_back(sender);
        if !std::mem::replace(&mut state.running, true) {
            tokio::spawn(Arc::clone(self).run());
        }
        Waiter { watch: Arc::clone(self), woken }
    }

    async fn run(self: Arc<Self>) {
        while self.is_wanted() {
            if let Err(error) = self.step().await {
                self.fail(&error);
                return;
            }
        }
    }

    /// One blocking command, and what follows from it.
    async fn step(&self) -> Result<(), Error> {
        let mut connection = self.connection().await?;
        let answer = connection.send_packed_command(&self.take_mark()).await;
        let answer = answer.and_then(Value::extract_error);
        if let Value::Array(parts) = answer.map_err(|error| self.lost(error))? {
            return self.give(parts.into_iter().next()).await;
        }
        self.wake_one();
        Ok(())
    }

    fn take_mark(&self) -> Cmd {
        let mut command = redis::cmd("BZPOPMIN");
        command.arg(&self.marks).arg(LASTS.as_secs());
        command
    }

    /// Keeps invariant 2 for the mark with this name.
    async fn give(&self, mark: Option<Value>) -> Result<(), Error> {
        match mark {
            Some(Value::BulkString(name)) if !self.wake_one() => {
                self.put_back(&name).await
            }
            _ => Ok(()),
        }
    }

    async fn put_back(&self, mark: &[u8]) -> Result<(), Error> {
        let mut command = redis::cmd("ZADD");
        command.arg(mark).arg(0).arg("1");
        self.link.ask(command).await.map(drop)
    }

    /// Wakes the waiter that is there for the longest: whether there was one.
    fn wake_one(&self) -> bool {
        let mut state = self.state();
        while let Some(waiter) = state.waiters.pop_front() {
            if waiter.send(Ok(())).is_ok() {
                return true;
            }
        }
        false
    }

    /// Whether somebody waits; if not, the command is not run again.
    fn is_wanted(&self) -> bool {
        let mut state = self.state();
        state.waiters.retain(|waiter| !waiter.is_closed());
        state.running = !state.waiters.is_empty();
        state.running
    }

    fn fail(&self, error: &Error) {
        let waiters = {
            let mut state = self.state();
            state.running = false;
            state.connection = None;
            std::mem::take(&mut state.waiters)
        };
        for waiter in waiters {
            let text = format!("{error}, while waiting for a key");
            // A waiter that is gone does not mind.
            drop(waiter.send(Err(Error::new(error.kind(), text))));
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        let kept = self.state().connection.as_ref().map(|kept| kept.0.clone());
        if let Some(connection) = kept {
            return Ok(connection);
        }
        let connection = self.link.connect(LASTS).await?;
        self.state().connection = Some(Connection(connection.clone()));
        Ok(connection)
    }

    /// What the loss of a mark's answer means: nothing was changed that matters.
    fn lost(&self, error: RedisError) -> Error {
        let error = fault(self.link.place(), error, Stage::Calling);
        if error.kind() != ErrorKind::Unknown {
            return error;
        }
        let text = format!("{}: the connection was lost", self.link.place());
        Error::new(ErrorKind::Unavailable, text).because(error)
    }

    fn state(&self) -> MutexGuard<'_, Watching> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits.
struct Waiter {
    watch: Arc<Watch>,
    woken: oneshot::Receiver<Woken>,
}

/// Keeps invariant 3.
impl Drop for Waiter {
    fn drop(&mut self) {
        self.woken.close();
        if !matches!(self.woken.try_recv(), Ok(Ok(()))) || self.watch.wake_one() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let watch = Arc::clone(&self.watch);
            runtime.spawn(async move {
                // Any of the marks will do: whoever takes it looks into all partitions.
                let mark = watch.marks[0].clone();
                // If that fails, `LASTS` is how long others wait at most.
                drop(watch.put_back(mark.as_bytes()).await);
            });
        }
    }
}
