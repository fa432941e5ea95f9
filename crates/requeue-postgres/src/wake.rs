//! How workers that wait learn that a key is ready.
//!
//! One connection of each store listens for all that wait on it; it is made when the first
//! one waits. Whoever makes a key ready notifies: an add in the same round trip, if it is
//! its turn, and all others by a task that sends what they ask for. That is once in
//! [`APART`] on average, a few at once after a rest, and not at all while no worker waits.
//!
//! # Invariants
//!
//! 1. A wake-up that comes while nobody waits is kept for the next who does.
//! 2. One wake-up is for one waiter; whoever leaves keys behind passes it on.
//! 3. Whoever waits looks again after [`FALLBACK`], notified or not. So a notification
//!    that was lost with a connection, or never sent, costs no more than that.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Clock, SystemClock};
use requeue_store::{EngineClock, Error, within};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

use crate::failure;
use crate::pool::{Pool, Terms};

/// The least time between two notifications of a process, on average: each takes, at its
/// commit, a lock that the whole database shares.
const APART: Duration = Duration::from_millis(10);

/// How much of that may be used ahead of time: ten notifications at once after a rest.
const AHEAD: Duration = Duration::from_millis(90);

/// How long none is sent after one that found no worker waiting, or failed.
const APART_IF_BUSY: Duration = Duration::from_millis(100);

/// How long a notification may keep the server busy, as a part of the time.
const SHARE: u32 = 4;

/// About how long a waiter that hears nothing waits before it looks.
const FALLBACK: Duration = Duration::from_secs(1);

/// A delay that is longer than this is found by those who look in time anyway.
pub(crate) const SOON: Duration = Duration::from_millis(1500);

/// The wake-ups of one store.
pub(crate) struct Wake {
    pool: Arc<Pool>,
    queue: i32,
    clock: Option<EngineClock>,
    ready: Arc<Notify>,
    asked: Arc<Notify>,
    turns: Arc<Turns>,
    teller: OnceLock<()>,
    listener: OnceLock<()>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Wake {
    pub(crate) fn new(pool: Arc<Pool>, queue: i32, clock: Option<EngineClock>) -> Self {
        Self {
            pool,
            queue,
            clock,
            ready: Arc::new(Notify::new()),
            asked: Arc::new(Notify::new()),
            turns: Arc::default(),
            teller: OnceLock::new(),
            listener: OnceLock::new(),
            tasks: Mutex::new(Vec::new()),
        }
    }

    /// Wakes one waiter of this store.
    pub(crate) fn here(&self) {
        self.ready.notify_one();
    }

    /// Wakes waiters of this store and, soon, of all others on the queue.
    pub(crate) fn everywhere(&self) {
        self.here();
        self.asked.notify_one();
        self.teller.get_or_init(|| {
            let (pool, asked) = (Arc::clone(&self.pool), Arc::clone(&self.asked));
            let turns = Arc::clone(&self.turns);
            self.spawn(tell(pool, asked, turns, self.queue, self.clock.clone()));
        });
    }

    /// Whether a call may notify by itself now.
    pub(crate) fn take_turn(&self) -> bool {
        self.turns.take(SystemClock.now()).is_ok()
    }

    /// Takes in whether a call that took its turn found somebody who waits.
    pub(crate) fn told(&self, told: bool) {
        if !told {
            self.turns.put_off(SystemClock.now() + APART_IF_BUSY);
        }
    }

    /// Waits for a wake-up, or until it is time to look.
    pub(crate) async fn wait(&self, at_most: Duration) {
        self.listener.get_or_init(|| {
            let terms = self.pool.terms().clone();
            self.spawn(listen(terms, self.queue, Arc::clone(&self.ready)));
        });
        within(at_most.min(jittered(FALLBACK)), self.ready.notified()).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// When notifications may be sent.
#[derive(Default)]
struct Turns {
    /// Until when the time is used up.
    used: Mutex<Option<Instant>>,
}

impl Turns {
    /// Takes a turn, if one has come, or tells when it will.
    fn take(&self, now: Instant) -> Result<(), Instant> {
        let mut used = self.lock();
        let until = used.unwrap_or(now).max(now);
        let wait = until.saturating_duration_since(now).saturating_sub(AHEAD);
        if !wait.is_zero() {
            return Err(now + wait);
        }
        *used = Some(until + APART);
        Ok(())
    }

    /// Takes in that a turn took so much longer than it should.
    fn lengthen(&self, by: Duration) {
        let mut used = self.lock();
        *used = used.map(|until| until + by);
    }

    /// Lets the next turn come no earlier than that.
    fn put_off(&self, until: Instant) {
        let mut used = self.lock();
        *used = (*used).max(Some(until + AHEAD));
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

/// Sends the notifications that were asked for, in one as many as came meanwhile.
async fn tell(
    pool: Arc<Pool>,
    asked: Arc<Notify>,
    turns: Arc<Turns>,
    queue: i32,
    clock: Option<EngineClock>,
) {
    loop {
        asked.notified().await;
        turns.wait().await;
        let begun = SystemClock.now();
        let now = clock.as_ref().map(|clock| crate::signed(clock.now().micros()));
        let params = params![queue, now];
        let row = pool.call_one("notify_workers", &params).await;
        let told = row.ok().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
        if !told {
            turns.put_off(begun + APART_IF_BUSY);
        }
        turns.lengthen((begun.elapsed() * SHARE).saturating_sub(APART));
    }
}

/// Listens for notifications, on connection after connection.
async fn listen(terms: Terms, queue: i32, ready: Arc<Notify>) {
    loop {
        // What went wrong is told to those who look; here it only means to try again.
        let _ended = listen_once(&terms, queue, &ready).await;
        let deadline = SystemClock.now() + jittered(FALLBACK);
        SystemClock.timer(deadline).await;
    }
}

/// Listens until the connection ends. Whoever waits looks once at the beginning: a key may
/// have become ready before.
async fn listen_once(
    terms: &Terms,
    queue: i32,
    ready: &Arc<Notify>,
) -> Result<(), Error> {
    let address = &terms.address;
    let wrap = |error| failure::of_connecting(error, address);
    let (client, mut messages) = address.connect().await.map_err(wrap)?;
    let heard = Arc::clone(ready);
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| messages(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                heard.notify_one();
            }
        }
    });
    let channel = terms.schema.channel(queue).replace('"', "\"\"");
    client.batch_execute(&format!("listen \"{channel}\"")).await.map_err(wrap)?;
    ready.notify_one();
    let _ended = driver.await;
    Ok(())
}

/// A time within a tenth of `time`, so that many who wait do not all look at once.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) % 1000;
    let share = u32::try_from(random).unwrap_or_default();
    time * (900 + share / 5) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_turns_come_at_once_and_then_one_in_ten_milliseconds() {
        let (turns, now) = (Turns::default(), SystemClock.now());
        for _ in 0..10 {
            assert_eq!(turns.take(now), Ok(()));
        }
        assert_eq!(turns.take(now), Err(now + APART));
        assert_eq!(turns.take(now + APART), Ok(()));
        assert_eq!(turns.take(now + APART), Err(now + 2 * APART));
    }

    #[test]
    fn a_turn_that_was_put_off_is_one_and_not_ten() {
        let (turns, now) = (Turns::default(), SystemClock.now());
        let later = now + APART_IF_BUSY;
        turns.put_off(later);
        assert_eq!(turns.take(now), Err(later));
        assert_eq!(turns.take(later), Ok(()));
        assert_eq!(turns.take(later), Err(later + APART));
    }

    #[test]
    fn a_turn_that_took_long_puts_off_those_after_it() {
        let (turns, now) = (Turns::default(), SystemClock.now());
        assert_eq!(turns.take(now), Ok(()));
        turns.lengthen(AHEAD + APART);
        assert_eq!(turns.take(now), Err(now + 2 * APART));
    }
}
