//! Wake-ups: how waiting workers learn that a key is ready, or due earlier than known.
//!
//! Each store has one connection that listens for all its waiters, opened for the first of
//! them. A call that makes keys ready sends a notification: an add in the same round trip,
//! if it gets a turn, all other calls through a background task. A process sends one per
//! [`INTERVAL`] on average, a few at once after a pause. The server sends none while no
//! worker waits.
//!
//! Behind a pooler no connection can listen, and waiters look every [`POLL_INTERVAL`].
//!
//! # Invariants
//!
//! 1. A wake-up without a waiter is kept for the next waiter.
//! 2. A wake-up for a ready key is for one waiter, which passes it on if it leaves keys
//!    behind. A notification is for all waiters: the earliest delay may have changed.
//! 3. A waiter looks again after [`FALLBACK`], notified or not. This bounds the cost of a
//!    notification that was lost with its connection, or never sent.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_store::{EngineClock, Error, within};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use crate::error;
use crate::pool::{Pool, PoolOptions};

/// Average time between two notifications of a process. The commit of each takes a lock
/// that the whole database shares.
const INTERVAL: Duration = Duration::from_millis(4);

/// How far notifications may run ahead of the average: ten at once after a pause.
const BURST: Duration = Duration::from_millis(36);

/// Pause after a notification that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Longest wait behind a pooler, give or take a tenth.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The interval is at least this multiple of the time that a notification takes.
const SLOWDOWN: u32 = 4;

/// Longest wait without a notification, give or take a tenth.
const FALLBACK: Duration = Duration::from_secs(1);

/// The wake-ups of one store.
pub(crate) struct Wakeups {
    pool: Arc<Pool>,
    queue: i32,
    clock: Option<EngineClock>,
    ready: Arc<Signal>,
    requested: Arc<Notify>,
    turns: Arc<Turns>,
    sender: Task,
    listener: Task,
}

impl Wakeups {
    pub(crate) fn new(pool: Arc<Pool>, queue: i32, clock: Option<EngineClock>) -> Self {
        Self {
            pool,
            queue,
            clock,
            ready: Arc::default(),
            requested: Arc::new(Notify::new()),
            turns: Arc::default(),
            sender: Task::default(),
            listener: Task::default(),
        }
    }

    /// Wakes one waiter of this store.
    pub(crate) fn wake_local(&self) {
        self.ready.wake_one();
    }

    /// Wakes all waiters of this store: a delay may end earlier than they know.
    pub(crate) fn wake_each_local(&self) {
        self.ready.wake_each();
    }

    /// Wakes one waiter of this store and, soon, those of all other stores of the queue.
    pub(crate) fn wake_all(&self) {
        self.wake_local();
        self.requested.notify_one();
        self.sender.ensure_runs(|| {
            let (pool, requested) = (Arc::clone(&self.pool), Arc::clone(&self.requested));
            let turns = Arc::clone(&self.turns);
            send(pool, requested, turns, self.queue, self.clock.clone())
        });
    }

    /// Takes a turn to notify in the same call as an add, if one is due. Returns whether it
    /// did. Never behind a pooler: the call commits twice.
    pub(crate) fn try_take_turn(&self) -> bool {
        !self.is_pooled() && self.turns.take(SystemClock.now()).is_ok()
    }

    /// Waits for a wake-up, at most `at_most` or [`FALLBACK`].
    pub(crate) async fn wait(&self, at_most: Duration) {
        let longest = if self.is_pooled() { POLL_INTERVAL } else { FALLBACK };
        if !self.is_pooled() {
            self.listener.ensure_runs(|| {
                let options = self.pool.options().clone();
                listen(options, self.queue, Arc::clone(&self.ready))
            });
        }
        self.ready.wait(at_most.min(jittered(longest))).await;
    }

    fn is_pooled(&self) -> bool {
        self.pool.options().address.is_pooler()
    }
}

/// A background task that is started again if it has ended, for example with its runtime.
/// Aborted on drop.
#[derive(Default)]
struct Task {
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Task {
    fn ensure_runs<F: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce() -> F,
    ) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_none_or(JoinHandle::is_finished) {
            *running = Some(tokio::spawn(task()));
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        running.iter().for_each(JoinHandle::abort);
    }
}

/// Wakes one waiter or all of them. Without a waiter, the wake-up is kept for the next one.
#[derive(Default)]
struct Signal {
    notify: Notify,
    waiting: AtomicUsize,
}

impl Signal {
    fn wake_one(&self) {
        self.notify.notify_one();
    }

    fn wake_each(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            self.notify.notify_one();
        } else {
            self.notify.notify_waiters();
        }
    }

    /// Waits for a wake-up, at most `at_most`. A waiter that is dropped before passes its
    /// wake-up on.
    async fn wait(&self, at_most: Duration) {
        // Registered before it is counted: a wake-up in between is kept for it.
        let notified = self.notify.notified();
        let mut waiting = Waiting { signal: self, returned: false };
        self.waiting.fetch_add(1, Ordering::SeqCst);
        within(at_most, notified).await;
        waiting.returned = true;
    }
}

/// One waiter, counted until it is dropped.
struct Waiting<'a> {
    signal: &'a Signal,
    /// Whether the caller looks for keys next.
    returned: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.signal.waiting.fetch_sub(1, Ordering::SeqCst);
        if !self.returned {
            self.signal.notify.notify_one();
        }
    }
}

impl fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeups").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// When notifications may be sent.
#[derive(Default)]
struct Turns {
    /// The time that the notifications so far have used up.
    used: Mutex<Option<Instant>>,
}

impl Turns {
    /// Takes a turn, or returns when one is due.
    fn take(&self, now: Instant) -> Result<(), Instant> {
        let mut used = self.lock();
        let until = used.unwrap_or(now).max(now);
        let wait = until.saturating_duration_since(now).saturating_sub(BURST);
        if !wait.is_zero() {
            return Err(now + wait);
        }
        *used = Some(until + INTERVAL);
        Ok(())
    }

    /// Delays the next turns by this much.
    fn lengthen(&self, by: Duration) {
        let mut used = self.lock();
        *used = used.map(|until| until + by);
    }

    /// Allows no turn before `until`.
    fn put_off(&self, until: Instant) {
        let mut used = self.lock();
        *used = (*used).max(Some(until + BURST));
    }

    /// Waits for the next turn, and takes it.
    async fn wait(&self) {
        while let Err(next) = self.take(SystemClock.now()) {
            SystemClock.timer(next).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the requested notifications. Requests that arrive meanwhile are combined.
async fn send(
    pool: Arc<Pool>,
    requested: Arc<Notify>,
    turns: Arc<Turns>,
    queue: i32,
    clock: Option<EngineClock>,
) {
    loop {
        requested.notified().await;
        turns.wait().await;
        let begun = SystemClock.now();
        let now = clock.as_ref().map(|clock| crate::signed(clock.now().micros()));
        let params = params![queue, now];
        if pool.call_one("notify_workers", &params).await.is_err() {
            turns.put_off(begun + PAUSE_AFTER_FAILURE);
        }
        turns.lengthen((begun.elapsed() * SLOWDOWN).saturating_sub(INTERVAL));
    }
}

/// Listens for notifications, on connection after connection.
async fn listen(options: PoolOptions, queue: i32, ready: Arc<Signal>) {
    loop {
        // Calls report what is wrong with the server. This only tries again.
        let _ended = listen_once(&options, queue, &ready).await;
        let deadline = SystemClock.now() + jittered(FALLBACK);
        SystemClock.timer(deadline).await;
    }
}

/// Listens until the connection ends. Wakes all waiters first: a key may have become ready
/// before.
async fn listen_once(
    options: &PoolOptions,
    queue: i32,
    ready: &Arc<Signal>,
) -> Result<(), Error> {
    let address = &options.address;
    let wrap = |error| error::of_connecting(error, address);
    let (client, mut messages) = address.connect().await?;
    let heard = Arc::clone(ready);
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| messages(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                heard.wake_each();
            }
        }
    });
    let channel = options.schema.channel(queue).replace('"', "\"\"");
    client.batch_execute(&format!("listen \"{channel}\"")).await.map_err(wrap)?;
    ready.wake_each();
    let _ended = driver.await;
    Ok(())
}

/// Returns `time`, give or take a tenth, so that waiters do not all look at once.
fn jittered(time: Duration) -> Duration {
    let share = u32::try_from(crate::random(1000)).unwrap_or_default();
    time * (900 + share / 5) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_turns_are_due_at_once_and_then_one_per_interval() {
        let (turns, now) = (Turns::default(), SystemClock.now());
        for _ in 0..10 {
            assert_eq!(turns.take(now), Ok(()));
        }
        assert_eq!(turns.take(now), Err(now + INTERVAL));
        assert_eq!(turns.take(now + INTERVAL), Ok(()));
        assert_eq!(turns.take(now + INTERVAL), Err(now + 2 * INTERVAL));
    }

    #[test]
    fn only_one_turn_is_due_after_a_pause() {
        let (turns, now) = (Turns::default(), SystemClock.now());
        let later = now + PAUSE_AFTER_FAILURE;
        turns.put_off(later);
        assert_eq!(turns.take(now), Err(later));
        assert_eq!(turns.take(later), Ok(()));
        assert_eq!(turns.take(later), Err(later + INTERVAL));
    }

    #[test]
    fn slow_turn_delays_the_next_ones() {
        let (turns, now) = (Turns::default(), SystemClock.now());
        assert_eq!(turns.take(now), Ok(()));
        turns.lengthen(BURST + INTERVAL);
        assert_eq!(turns.take(now), Err(now + 2 * INTERVAL));
    }
}
