//! Wake-ups: how waiting workers learn that a key is ready.
//!
//! Each store has one connection that listens for all its waiters, opened for the first of
//! them. A call that makes keys ready sends a notification: an add in the same round trip,
//! if it gets a turn, all other calls through a background task. A process sends one per
//! [`INTERVAL`] on average, a few at once after a pause, and none while no worker waits.
//!
//! # Invariants
//!
//! 1. A wake-up without a waiter is kept for the next waiter.
//! 2. A wake-up is for one waiter. A waiter that leaves keys behind passes it on.
//! 3. A waiter looks again after [`FALLBACK`], notified or not. This bounds the cost of a
//!    notification that was lost with its connection, or never sent.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_store::{EngineClock, Error, within};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

use crate::error;
use crate::pool::{Pool, PoolOptions};

/// Average time between two notifications of a process. The commit of each takes a lock
/// that the whole database shares.
const INTERVAL: Duration = Duration::from_millis(10);

/// How far notifications may run ahead of the average: ten at once after a pause.
const BURST: Duration = Duration::from_millis(90);

/// Pause after a notification that found no waiting worker, or failed.
const PAUSE_IF_BUSY: Duration = Duration::from_millis(100);

/// The interval is at least this multiple of the time that a notification takes.
const SLOWDOWN: u32 = 4;

/// Longest wait without a notification, give or take a tenth.
const FALLBACK: Duration = Duration::from_secs(1);

/// Waiters find delays that are longer than this without a notification.
pub(crate) const SOON: Duration = Duration::from_millis(1500);

/// The wake-ups of one store.
pub(crate) struct Wakeups {
    pool: Arc<Pool>,
    queue: i32,
    clock: Option<EngineClock>,
    ready: Arc<Notify>,
    requested: Arc<Notify>,
    turns: Arc<Turns>,
    sender: OnceLock<()>,
    listener: OnceLock<()>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Wakeups {
    pub(crate) fn new(pool: Arc<Pool>, queue: i32, clock: Option<EngineClock>) -> Self {
        Self {
            pool,
            queue,
            clock,
            ready: Arc::new(Notify::new()),
            requested: Arc::new(Notify::new()),
            turns: Arc::default(),
            sender: OnceLock::new(),
            listener: OnceLock::new(),
            tasks: Mutex::new(Vec::new()),
        }
    }

    /// Wakes one waiter of this store.
    pub(crate) fn wake_local(&self) {
        self.ready.notify_one();
    }

    /// Wakes one waiter of this store and, soon, those of all other stores of the queue.
    pub(crate) fn wake_all(&self) {
        self.wake_local();
        self.requested.notify_one();
        self.sender.get_or_init(|| {
            let (pool, requested) = (Arc::clone(&self.pool), Arc::clone(&self.requested));
            let turns = Arc::clone(&self.turns);
            self.spawn(send(pool, requested, turns, self.queue, self.clock.clone()));
        });
    }

    /// Takes a turn to notify, if one is due. Returns whether it did.
    pub(crate) fn try_take_turn(&self) -> bool {
        self.turns.take(SystemClock.now()).is_ok()
    }

    /// Records whether a call that took a turn notified waiting workers.
    pub(crate) fn record_turn(&self, notified: bool) {
        if !notified {
            self.turns.put_off(SystemClock.now() + PAUSE_IF_BUSY);
        }
    }

    /// Waits for a wake-up, at most `at_most` or [`FALLBACK`].
    pub(crate) async fn wait(&self, at_most: Duration) {
        self.listener.get_or_init(|| {
            let options = self.pool.options().clone();
            self.spawn(listen(options, self.queue, Arc::clone(&self.ready)));
        });
        within(at_most.min(jittered(FALLBACK)), self.ready.notified()).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(AbortHandle::abort);
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
        let row = pool.call_one("notify_workers", &params).await;
        let notified = row.ok().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
        if !notified {
            turns.put_off(begun + PAUSE_IF_BUSY);
        }
        turns.lengthen((begun.elapsed() * SLOWDOWN).saturating_sub(INTERVAL));
    }
}

/// Listens for notifications, on connection after connection.
async fn listen(options: PoolOptions, queue: i32, ready: Arc<Notify>) {
    loop {
        // Calls report what is wrong with the server. This only tries again.
        let _ended = listen_once(&options, queue, &ready).await;
        let deadline = SystemClock.now() + jittered(FALLBACK);
        SystemClock.timer(deadline).await;
    }
}

/// Listens until the connection ends. Wakes one waiter first: a key may have become ready
/// before.
async fn listen_once(
    options: &PoolOptions,
    queue: i32,
    ready: &Arc<Notify>,
) -> Result<(), Error> {
    let address = &options.address;
    let wrap = |error| error::of_connecting(error, address);
    let (client, mut messages) = address.connect().await?;
    let heard = Arc::clone(ready);
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| messages(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                heard.notify_one();
            }
        }
    });
    let channel = options.schema.channel(queue).replace('"', "\"\"");
    client.batch_execute(&format!("listen \"{channel}\"")).await.map_err(wrap)?;
    ready.notify_one();
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
    fn ten_turns_are_due_at_once_and_then_one_every_ten_milliseconds() {
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
        let later = now + PAUSE_IF_BUSY;
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
