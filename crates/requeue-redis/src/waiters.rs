//! The callers of this process that wait for a key.
//!
//! Each partition has a marker in its part `wake`. A script sets it when a key becomes ready
//! in an empty queue, and when a lease leaves ready keys behind. A blocking command removes
//! the marker, so one add wakes one of all waiting processes. That process leases keys, and
//! its lease sets the marker again if keys are left.
//!
//! All waiters of a process share a *listener*: a connection with one blocking command. On a
//! server, one listener watches the markers of all partitions. In a cluster a command cannot
//! use keys of several slots, so each partition has its own listener. When the command of the
//! first listener ends without a marker, a waiter looks into all partitions.
//!
//! # Invariants
//!
//! 1. A listener runs only while there are waiters, or until its command ends. It runs one
//!    command at a time.
//! 2. A removed marker is passed to one waiter. Without a waiter it is set again.
//! 3. A waiter that is cancelled after it got a marker passes it on, by invariant 2.
//! 4. A listener that ends for any reason, such as the end of its runtime, can be started
//!    again, and all waiters look.
//! 5. The first lease after a wait looks at what it leaves behind and sets the marker again.
//!    A lease for which no marker was removed need not look.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use requeue_store::{Error, within};
use tokio::sync::oneshot;

use crate::client::Client;
use crate::engine::Engine;
use crate::node::Node;

/// How long the blocking command of a server takes without a marker. Then one waiter looks
/// for keys, in case a process died with the marker.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a queue that waits looks for keys by itself. It must be woken for anything that
/// is due earlier. The same as in `lease.lua`.
pub(crate) const WAITERS_LOOK: Duration = Duration::from_secs(20);

/// The same as [`SERVER_TIMEOUT`] for the first listener in a cluster, where looking for keys
/// is a call per partition. It is a little less than [`WAITERS_LOOK`].
const FIRST_TIMEOUT: Duration = Duration::from_secs(19);

/// The same for the other listeners in a cluster. Long, so that an idle process sends few
/// commands; a dead connection is noticed after this time.
const OTHER_TIMEOUT: Duration = Duration::from_secs(30);

type Woken = Result<(), Error>;

#[derive(Debug)]
pub(crate) struct Waiters {
    engine: Arc<Engine>,
    listeners: Vec<Listener>,
    state: Mutex<State>,
    /// Whether a wait ended since the last lease that looked: invariant 5.
    has_waited: AtomicBool,
}

#[derive(Debug)]
struct Listener {
    /// The partition of the marker, or the first one.
    partition: usize,
    /// The Redis keys of the markers.
    markers: Vec<String>,
    timeout: Duration,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<oneshot::Sender<Woken>>,
    /// Whether each listener runs.
    running: Vec<bool>,
    /// The connection of each listener.
    connections: Vec<Option<Connection>>,
}

/// A connection to the node that had the partition when it was opened.
#[derive(Clone)]
struct Connection(MultiplexedConnection, Arc<Node>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.1).finish_non_exhaustive()
    }
}

impl Waiters {
    pub(crate) fn new(client: &Client) -> Arc<Self> {
        let engine = Arc::clone(&client.engine);
        let markers = client.names_of("wake");
        let listeners = match &*engine {
            Engine::Server(_) => {
                vec![Listener { partition: 0, markers, timeout: SERVER_TIMEOUT }]
            }
            Engine::Cluster(_) => listeners_of(markers),
        };
        let state = State {
            waiting: VecDeque::new(),
            running: vec![false; listeners.len()],
            connections: vec![None; listeners.len()],
        };
        let has_waited = AtomicBool::new(false);
        Arc::new(Self { engine, listeners, state: Mutex::new(state), has_waited })
    }

    /// Waits for a marker, at most for this time.
    pub(crate) async fn wait(self: &Arc<Self>, timeout: Duration) -> Result<(), Error> {
        let mut waiter = self.join();
        match within(timeout, &mut waiter.woken).await {
            Some(Ok(woken)) => woken,
            Some(Err(_)) | None => Ok(()),
        }
    }

    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited.load(Ordering::Acquire)
    }

    /// Resets [`has_waited`](Self::has_waited) before a lease that looks. Returns its value.
    pub(crate) fn take_waited(&self) -> bool {
        self.has_waited.swap(false, Ordering::AcqRel)
    }

    /// Restores the value after a lease that failed and may not have looked.
    pub(crate) fn restore_waited(&self, has_waited: bool) {
        self.has_waited.fetch_or(has_waited, Ordering::AcqRel);
    }

    fn join(self: &Arc<Self>) -> Waiter {
        let (sender, woken) = oneshot::channel();
        let mut state = self.state();
        state.waiting.retain(|waiter| !waiter.is_closed());
        state.waiting.push_back(sender);
        for number in 0..self.listeners.len() {
            if !std::mem::replace(&mut state.running[number], true) {
                tokio::spawn(listen(Listening::new(self, number)));
            }
        }
        Waiter { waiters: Arc::clone(self), woken }
    }

    /// Runs one blocking command.
    async fn listen_once(&self, number: usize) -> Result<(), Error> {
        let listener = &self.listeners[number];
        let Connection(mut connection, node) = self.connection(number).await?;
        let command = listener.command();
        let replying = connection.send_packed_command(&command);
        let deadline = listener.timeout.saturating_add(node.timeout);
        let Some(reply) = within(deadline, replying).await else {
            return Err(self.engine.lost_connection(&node));
        };
        match reply.and_then(Value::extract_error) {
            Ok(Value::Array(parts)) => {
                self.pass_on(listener.partition, parts.into_iter().next()).await?;
            }
            Ok(_) if number == 0 => drop(self.wake_one()),
            Ok(_) => {}
            Err(error) => {
                self.state().connections[number] = None;
                let error = self.engine.blocking_error(listener.partition, &node, error);
                error.map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }

    /// Keeps invariant 2 for the marker with this Redis key.
    async fn pass_on(
        &self,
        partition: usize,
        marker: Option<Value>,
    ) -> Result<(), Error> {
        match marker {
            Some(Value::BulkString(name)) if !self.wake_one() => {
                self.set_marker(partition, &name).await
            }
            _ => Ok(()),
        }
    }

    async fn set_marker(&self, partition: usize, name: &[u8]) -> Result<(), Error> {
        let mut command = redis::cmd("ZADD");
        command.arg(name).arg(0).arg("1");
        self.engine.send(partition, command).await.map(drop)
    }

    /// Wakes the first waiter. Returns whether there was one.
    fn wake_one(&self) -> bool {
        let mut state = self.state();
        while let Some(waiter) = state.waiting.pop_front() {
            if waiter.send(Ok(())).is_ok() {
                return true;
            }
        }
        false
    }

    /// Returns whether there are waiters. If not, the listener stops.
    fn is_needed(&self, number: usize) -> bool {
        let mut state = self.state();
        state.waiting.retain(|waiter| !waiter.is_closed());
        state.running[number] = !state.waiting.is_empty();
        state.running[number]
    }

    /// Keeps invariant 4.
    fn end(&self, number: usize, woken: &Woken) {
        let waiting = {
            let mut state = self.state();
            state.running[number] = false;
            state.connections[number] = None;
            std::mem::take(&mut state.waiting)
        };
        for waiter in waiting {
            // The waiter may have been cancelled.
            drop(waiter.send(woken.clone()));
        }
    }

    async fn connection(&self, number: usize) -> Result<Connection, Error> {
        let open = self.state().connections[number].clone();
        if let Some(connection) = open {
            return Ok(connection);
        }
        let listener = &self.listeners[number];
        let node = self.engine.node_of(listener.partition);
        let connection = self.engine.connect(&node).await?;
        let connection = Connection(connection, node);
        self.state().connections[number] = Some(connection.clone());
        Ok(connection)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    fn command(&self) -> Cmd {
        let mut command = redis::cmd("BZPOPMIN");
        command.arg(&self.markers).arg(self.timeout.as_secs());
        command
    }
}

/// Returns a listener for each partition.
fn listeners_of(markers: Vec<String>) -> Vec<Listener> {
    let listener = |(partition, marker)| {
        let timeout = if partition == 0 { FIRST_TIMEOUT } else { OTHER_TIMEOUT };
        Listener { partition, markers: vec![marker], timeout }
    };
    markers.into_iter().enumerate().map(listener).collect()
}

/// A listener that runs. Its drop ends it, also if its task panics or its runtime is gone.
struct Listening {
    waiters: Arc<Waiters>,
    number: usize,
    /// What the waiters get when it ends; `None` if it stopped because there are none.
    woken: Option<Woken>,
}

impl Listening {
    fn new(waiters: &Arc<Waiters>, number: usize) -> Self {
        Self { waiters: Arc::clone(waiters), number, woken: Some(Ok(())) }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(woken) = &self.woken {
            self.waiters.end(self.number, woken);
        }
    }
}

async fn listen(mut listening: Listening) {
    let (waiters, number) = (Arc::clone(&listening.waiters), listening.number);
    while waiters.is_needed(number) {
        if let Err(error) = waiters.listen_once(number).await {
            let text = format!("{error}, while waiting for a key");
            listening.woken = Some(Err(Error::new(error.kind(), text)));
            return;
        }
    }
    listening.woken = None;
}

/// A caller that waits.
struct Waiter {
    waiters: Arc<Waiters>,
    woken: oneshot::Receiver<Woken>,
}

/// Keeps invariants 3 and 5.
impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.has_waited.store(true, Ordering::Release);
        self.woken.close();
        if !matches!(self.woken.try_recv(), Ok(Ok(()))) || self.waiters.wake_one() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let waiters = Arc::clone(&self.waiters);
            runtime.spawn(async move {
                // Any marker will do: a woken process looks into all partitions.
                let marker = waiters.listeners[0].markers[0].clone();
                // If this fails, other processes look when their command ends.
                drop(waiters.set_marker(0, marker.as_bytes()).await);
            });
        }
    }
}
