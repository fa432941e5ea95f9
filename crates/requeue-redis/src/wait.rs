//! Waiting for a key, on connections of its own.
//!
//! Each partition has a mark in its part `wake`. Scripts set it when a first key comes into
//! an empty line, and when a lease leaves keys in it: so whoever takes the mark, and then
//! takes keys, passes it on. A blocking command takes it, and takes it once: one add wakes
//! one of all the processes that wait.
//!
//! One command is a post. A server has one for all partitions. In a cluster no command has
//! keys of several slots, so there is one for each partition, with its own connection. When
//! the command of the first post ends without a mark, a waiter looks into all partitions;
//! so the others last longer.
//!
//! # Invariants
//!
//! 1. A post runs only while somebody waits, or until its command ends by itself. One
//!    command of it runs at a time.
//! 2. A mark that was taken is given to one waiter. If none is left, it is put back.
//! 3. A waiter that was given one and does not return gives it on, by invariant 2.
//! 4. The first lease after a wait looks at what it leaves behind, and passes the mark on
//!    if that is due within [`UNWATCHED`]. Leases between which nobody waits have taken no mark
//!    and need not look.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use requeue_store::{Error, within};
use tokio::sync::oneshot;

use crate::link::Link;
use crate::servers::Servers;

/// How long the blocking command of a server lasts. When it ends, one waiter looks for keys:
/// a mark that went to a process which died with it costs the others no more than this.
const LASTS: Duration = Duration::from_secs(5);

/// The same for the first post of a cluster, where a look is a call for each partition: a
/// little less than [`UNWATCHED`], after which queues look by themselves.
const FIRST_LASTS: Duration = Duration::from_secs(19);

/// How long those of the other posts last: as few commands as may be, and a connection that
/// is dead without having said so is still noticed.
const OTHERS_LAST: Duration = Duration::from_secs(30);

/// What is due sooner than this is known to somebody who waits, if anybody does. The same
/// as in lease.lua.
pub(crate) const UNWATCHED: Duration = Duration::from_secs(20);

type Woken = Result<(), Error>;

#[derive(Debug)]
pub(crate) struct Watch {
    servers: Arc<Servers>,
    posts: Vec<Post>,
    state: Mutex<Watching>,
    /// Whether somebody has waited since keys were last looked for: invariant 4.
    waited: AtomicBool,
}

#[derive(Debug)]
struct Post {
    /// The partition of its marks, or the first of them.
    partition: usize,
    /// Their Redis keys.
    marks: Vec<String>,
    lasts: Duration,
}

#[derive(Debug, Default)]
struct Watching {
    waiters: VecDeque<oneshot::Sender<Woken>>,
    /// Of each post.
    running: Vec<bool>,
    connections: Vec<Option<Connection>>,
}

/// To the node that had the partition when it was made.
#[derive(Clone)]
struct Connection(MultiplexedConnection, Arc<Link>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.1).finish_non_exhaustive()
    }
}

impl Watch {
    /// `marks` are those of each partition.
    pub(crate) fn new(servers: Arc<Servers>, marks: Vec<String>) -> Arc<Self> {
        let posts = match &*servers {
            Servers::One(_) => vec![Post { partition: 0, marks, lasts: LASTS }],
            Servers::Many(_) => posts(marks),
        };
        let state = Watching {
            waiters: VecDeque::new(),
            running: vec![false; posts.len()],
            connections: vec![None; posts.len()],
        };
        let waited = AtomicBool::new(false);
        Arc::new(Self { servers, posts, state: Mutex::new(state), waited })
    }

    /// Waits until a mark was taken, at most so long.
    pub(crate) async fn wait(self: &Arc<Self>, at_most: Duration) -> Result<(), Error> {
        let mut waiter = self.enlist();
        match within(at_most, &mut waiter.woken).await {
            Some(Ok(woken)) => woken,
            Some(Err(_)) | None => Ok(()),
        }
    }

    pub(crate) fn has_waited(&self) -> bool {
        self.waited.load(Ordering::Acquire)
    }

    /// Before a lease that looks: whether somebody has waited.
    pub(crate) fn take_waited(&self) -> bool {
        self.waited.swap(false, Ordering::AcqRel)
    }

    /// After a lease that failed, and may not have looked.
    pub(crate) fn put_waited(&self, waited: bool) {
        self.waited.fetch_or(waited, Ordering::AcqRel);
    }

    fn enlist(self: &Arc<Self>) -> Waiter {
        let (sender, woken) = oneshot::channel();
        let mut state = self.state();
        state.waiters.retain(|waiter| !waiter.is_closed());
        state.waiters.push_back(sender);
        for number in 0..self.posts.len() {
            if !std::mem::replace(&mut state.running[number], true) {
                tokio::spawn(Arc::clone(self).run(number));
            }
        }
        Waiter { watch: Arc::clone(self), woken }
    }

    async fn run(self: Arc<Self>, number: usize) {
        while self.is_wanted(number) {
            if let Err(error) = self.step(number).await {
                self.fail(number, &error);
                return;
            }
        }
    }

    /// One blocking command, and what follows from it.
    async fn step(&self, number: usize) -> Result<(), Error> {
        let post = &self.posts[number];
        let Connection(mut connection, node) = self.connection(number).await?;
        let answer = connection.send_packed_command(&post.take_mark(post.lasts)).await;
        match answer.and_then(Value::extract_error) {
            Ok(Value::Array(parts)) => {
                self.give(post, parts.into_iter().next()).await?;
            }
            Ok(_) if number == 0 => drop(self.wake_one()),
            Ok(_) => {}
            Err(error) => {
                self.state().connections[number] = None;
                self.servers.lost(post.partition, &node, error).map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }

    /// Keeps invariant 2 for the mark with this name.
    async fn give(&self, post: &Post, mark: Option<Value>) -> Result<(), Error> {
        match mark {
            Some(Value::BulkString(name)) if !self.wake_one() => {
                self.put_back(post.partition, &name).await
            }
            _ => Ok(()),
        }
    }

    async fn put_back(&self, partition: usize, mark: &[u8]) -> Result<(), Error> {
        let mut command = redis::cmd("ZADD");
        command.arg(mark).arg(0).arg("1");
        self.servers.ask(partition, command).await.map(drop)
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
    fn is_wanted(&self, number: usize) -> bool {
        let mut state = self.state();
        state.waiters.retain(|waiter| !waiter.is_closed());
        state.running[number] = !state.waiters.is_empty();
        state.running[number]
    }

    fn fail(&self, number: usize, error: &Error) {
        let waiters = {
            let mut state = self.state();
            state.running[number] = false;
            state.connections[number] = None;
            std::mem::take(&mut state.waiters)
        };
        for waiter in waiters {
            let text = format!("{error}, while waiting for a key");
            // A waiter that is gone does not mind.
            drop(waiter.send(Err(Error::new(error.kind(), text))));
        }
    }

    async fn connection(&self, number: usize) -> Result<Connection, Error> {
        let kept = self.state().connections[number].clone();
        if let Some(connection) = kept {
            return Ok(connection);
        }
        let post = &self.posts[number];
        let node = self.servers.home(post.partition);
        let connection = self.servers.connect(&node, post.lasts).await?;
        let connection = Connection(connection, node);
        self.state().connections[number] = Some(connection.clone());
        Ok(connection)
    }

    fn state(&self) -> MutexGuard<'_, Watching> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Post {
    fn take_mark(&self, at_most: Duration) -> Cmd {
        let mut command = redis::cmd("BZPOPMIN");
        // None would be for ever.
        let seconds = at_most.as_secs_f64().max(0.001);
        command.arg(&self.marks).arg(format!("{seconds:.3}"));
        command
    }
}

/// One for each partition.
fn posts(marks: Vec<String>) -> Vec<Post> {
    let post = |(partition, mark)| {
        let lasts = if partition == 0 { FIRST_LASTS } else { OTHERS_LAST };
        Post { partition, marks: vec![mark], lasts }
    };
    marks.into_iter().enumerate().map(post).collect()
}

/// One who waits.
struct Waiter {
    watch: Arc<Watch>,
    woken: oneshot::Receiver<Woken>,
}

/// Keeps invariant 3.
impl Drop for Waiter {
    fn drop(&mut self) {
        self.watch.waited.store(true, Ordering::Release);
        self.woken.close();
        if !matches!(self.woken.try_recv(), Ok(Ok(()))) || self.watch.wake_one() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let watch = Arc::clone(&self.watch);
            runtime.spawn(async move {
                // Any of the marks will do: whoever takes it looks into all partitions.
                let mark = watch.posts[0].marks[0].clone();
                // If that fails, others wait until their command ends.
                drop(watch.put_back(0, mark.as_bytes()).await);
            });
        }
    }
}
