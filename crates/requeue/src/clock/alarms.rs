//! Timers for tasks, all served by one thread of the process.
//!
//! Timers of a runtime are rounded to milliseconds and delayed by the kernel's timer slack.
//! This thread sleeps without slack. It starts with the first timer and does nothing but
//! sleep and wake tasks.
//!
//! # Invariants
//!
//! 1. `set` holds one entry for each alarm that was polled and has neither rung nor been
//!    dropped.
//! 2. The thread never sleeps beyond the first entry: a caller that puts an entry before all
//!    others wakes it.
//! 3. No waker is cloned, called or dropped while `set` is locked: it is foreign code.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use super::{Clock, SystemClock, slack};
use crate::contain::contain;

/// A moment, and a number that tells alarms of the same moment apart.
type Entry = (Instant, u64);

/// A future that is ready at a moment of the system's clock.
pub(super) struct Alarm {
    /// `None` is a moment that never comes.
    moment: Option<Instant>,
    /// The number of the entry in `set`, once there is one.
    number: Option<u64>,
}

impl Alarm {
    pub(super) fn new(moment: Option<Instant>) -> Self {
        Self { moment, number: None }
    }

    fn enter(&mut self, moment: Instant, waker: &Waker) {
        let alarms = Alarms::get();
        let number = *self.number.get_or_insert_with(|| alarms.number());
        alarms.enter((moment, number), waker);
    }

    /// Takes the entry out; one that has rung is gone already.
    fn leave(&mut self) {
        if let (Some(moment), Some(number)) = (self.moment, self.number.take()) {
            Alarms::get().leave((moment, number));
        }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(moment) = self.moment else { return Poll::Pending };
        if SystemClock.now() >= moment {
            self.leave();
            return Poll::Ready(());
        }
        self.enter(moment, cx.waker());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.leave();
    }
}

/// All alarms of the process, and the thread that rings them.
struct Alarms {
    set: Mutex<BTreeMap<Entry, Waker>>,
    numbers: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Alarms {
    const fn new() -> Self {
        Self {
            set: Mutex::new(BTreeMap::new()),
            numbers: AtomicU64::new(0),
            thread: OnceLock::new(),
        }
    }

    /// Those of the process.
    fn get() -> &'static Self {
        static ALARMS: Alarms = Alarms::new();
        &ALARMS
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn enter(&'static self, entry: Entry, waker: &Waker) {
        let waker = waker.clone();
        let mut set = self.lock();
        let replaced = set.insert(entry, waker);
        let first = set.first_key_value().is_some_and(|(first, _)| *first == entry);
        drop(set);
        // Invariant 2; one that was replaced was there before, and the thread knows it.
        if first && replaced.is_none() {
            self.thread().unpark();
        }
        drop(replaced);
    }

    fn leave(&self, entry: Entry) {
        let waker = self.lock().remove(&entry);
        drop(waker);
    }

    /// Entries change by whole steps of the map: a panic leaves it whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Entry, Waker>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread(&'static self) -> &'static Thread {
        self.thread.get_or_init(|| {
            let builder = thread::Builder::new().name("requeue-timer".to_owned());
            let spawned = builder.spawn(move || slack::without(|| self.ring_for_ever()));
            spawned.expect("a thread for timers can be started").thread().clone()
        })
    }

    fn ring_for_ever(&self) {
        loop {
            let now = SystemClock.now();
            let due = self.take_due(now);
            if due.is_empty() {
                self.sleep(now);
            }
            ring(due);
        }
    }

    fn take_due(&self, now: Instant) -> Vec<Waker> {
        let mut set = self.lock();
        let later = set.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut *set, later);
        drop(set);
        due.into_values().collect()
    }

    /// Sleeps until the first entry is due. An earlier entry that comes meanwhile unparks
    /// this thread, even before it parks.
    fn sleep(&self, now: Instant) {
        let first = self.lock().first_key_value().map(|((moment, _), _)| *moment);
        match first {
            None => thread::park(),
            Some(moment) => thread::park_timeout(moment.saturating_duration_since(now)),
        }
    }
}

/// Calls each waker. A panic must not stop the thread or the others.
fn ring(due: Vec<Waker>) {
    for waker in due {
        contain(|| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Says its number when it is woken.
    struct Bell(u64, Sender<u64>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.1.send(self.0).expect("the test listens");
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, on purpose");
        }
    }

    fn bells() -> (impl Fn(u64) -> Waker, Receiver<u64>) {
        let (send, rung) = channel();
        (move |number| Waker::from(Arc::new(Bell(number, send.clone()))), rung)
    }

    /// Alarms whose thread is this one, so that only the test rings them.
    fn alarms() -> &'static Alarms {
        let alarms = Alarms::new();
        alarms.thread.set(thread::current()).expect("no thread yet");
        Box::leak(Box::new(alarms))
    }

    fn poll(alarm: &mut Alarm, waker: &Waker) -> Poll<()> {
        Pin::new(alarm).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn what_is_due_rings_in_the_order_of_its_moments() {
        let (bell, rung) = bells();
        let (alarms, now) = (alarms(), SystemClock.now());
        for number in [3, 1, 2] {
            let seconds = Duration::from_secs(number);
            alarms.enter((now + seconds, number), &bell(number));
        }
        ring(alarms.take_due(now + Duration::from_secs(2)));
        assert_eq!(rung.try_iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(alarms.lock().len(), 1);
    }

    /// Parking for a day returns only because the entry has unparked this thread.
    #[test]
    fn an_entry_before_all_others_wakes_the_thread() {
        let (alarms, now) = (alarms(), SystemClock.now());
        for (number, delay) in (0..).zip([2 * DAY, DAY]) {
            alarms.enter((now + delay, number), Waker::noop());
            thread::park_timeout(DAY);
        }
        assert_eq!(alarms.lock().len(), 2);
    }

    #[test]
    fn an_alarm_that_is_dropped_leaves_nothing_behind() {
        let mut alarm = Alarm::new(SystemClock.now().checked_add(DAY));
        assert!(poll(&mut alarm, Waker::noop()).is_pending());
        let entry = (alarm.moment.unwrap(), alarm.number.unwrap());
        assert!(Alarms::get().lock().contains_key(&entry));
        drop(alarm);
        assert!(!Alarms::get().lock().contains_key(&entry));
    }

    #[test]
    fn the_last_waker_is_the_one_that_is_called() {
        let (bell, rung) = bells();
        let (alarms, now) = (alarms(), SystemClock.now());
        alarms.enter((now, 1), &bell(1));
        alarms.enter((now, 1), &bell(2));
        ring(alarms.take_due(now));
        assert_eq!(rung.try_iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_waker_that_panics_does_not_silence_the_others() {
        let (bell, rung) = bells();
        ring(vec![Waker::from(Arc::new(Panics)), bell(1)]);
        assert_eq!(rung.try_recv(), Ok(1));
    }

    #[test]
    fn a_moment_beyond_an_instant_never_comes() {
        let mut alarm = Alarm::new(SystemClock.now().checked_add(Duration::MAX));
        assert!(poll(&mut alarm, Waker::noop()).is_pending());
        assert_eq!(alarm.number, None, "and needs no entry");
    }

    #[test]
    fn the_thread_of_the_process_rings() {
        let soon = SystemClock.now() + Duration::from_millis(1);
        futures_executor::block_on(Alarm::new(Some(soon)));
        assert!(SystemClock.now() >= soon);
    }
}
