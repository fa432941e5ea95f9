//! Timers for tasks, served by one thread per process.
//!
//! The timers of a runtime are rounded to milliseconds and delayed by the kernel's timer
//! slack. This thread sleeps without slack. It starts with the first timer, and only sleeps
//! and wakes tasks.
//!
//! # Invariants
//!
//! 1. `set` holds one entry for each alarm that was polled and has neither fired nor been
//!    dropped.
//! 2. The thread never sleeps beyond the first entry: a caller that inserts a new first entry
//!    unparks it.
//! 3. No waker is cloned, called or dropped while `set` is locked: wakers are user code.

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

/// A deadline, and a number that distinguishes alarms with the same deadline.
type Entry = (Instant, u64);

/// A future that is ready at a time of the system clock.
pub(super) struct Alarm {
    /// `None` if it never comes.
    deadline: Option<Instant>,
    /// The number of its entry in `set`, if it has one.
    number: Option<u64>,
}

impl Alarm {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, number: None }
    }

    fn insert(&mut self, deadline: Instant, waker: &Waker) {
        let alarms = Alarms::get();
        let number = *self.number.get_or_insert_with(|| alarms.number());
        alarms.insert((deadline, number), waker);
    }

    /// Removes the entry, unless the alarm has fired.
    fn remove(&mut self) {
        if let (Some(deadline), Some(number)) = (self.deadline, self.number.take()) {
            Alarms::get().remove((deadline, number));
        }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        if SystemClock.now() >= deadline {
            self.remove();
            return Poll::Ready(());
        }
        self.insert(deadline, cx.waker());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.remove();
    }
}

/// All alarms of the process, and the thread that fires them.
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

    /// Returns the alarms of the process.
    fn get() -> &'static Self {
        static ALARMS: Alarms = Alarms::new();
        &ALARMS
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn insert(&'static self, entry: Entry, waker: &Waker) {
        let waker = waker.clone();
        let mut set = self.lock();
        let replaced = set.insert(entry, waker);
        let first = set.first_key_value().is_some_and(|(first, _)| *first == entry);
        drop(set);
        // Invariant 2. The thread knows an entry that was only replaced.
        if first && replaced.is_none() {
            self.thread().unpark();
        }
        drop(replaced);
    }

    fn remove(&self, entry: Entry) {
        let waker = self.lock().remove(&entry);
        drop(waker);
    }

    /// Each change is one operation of the map, so a panic leaves it whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Entry, Waker>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread(&'static self) -> &'static Thread {
        self.thread.get_or_init(|| {
            let builder = thread::Builder::new().name("requeue-timer".to_owned());
            let spawned = builder.spawn(move || slack::without(|| self.run()));
            spawned.expect("the timer thread can be started").thread().clone()
        })
    }

    fn run(&self) {
        loop {
            let now = SystemClock.now();
            let due = self.take_due(now);
            if due.is_empty() {
                self.sleep(now);
            }
            fire(due);
        }
    }

    fn take_due(&self, now: Instant) -> Vec<Waker> {
        let mut set = self.lock();
        let later = set.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut *set, later);
        drop(set);
        due.into_values().collect()
    }

    /// Sleeps until the first entry is due. A new first entry unparks this thread, even
    /// before it parks.
    fn sleep(&self, now: Instant) {
        let first = self.lock().first_key_value().map(|((deadline, _), _)| *deadline);
        match first {
            None => thread::park(),
            Some(deadline) => {
                thread::park_timeout(deadline.saturating_duration_since(now));
            }
        }
    }
}

/// Calls each waker. A panic does not stop the thread or the other wakers.
fn fire(due: Vec<Waker>) {
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

    /// Sends its number when it is woken.
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
        let (send, fired) = channel();
        (move |number| Waker::from(Arc::new(Bell(number, send.clone()))), fired)
    }

    /// Alarms whose thread is this one, so that only the test fires them.
    fn alarms() -> &'static Alarms {
        let alarms = Alarms::new();
        alarms.thread.set(thread::current()).expect("no thread yet");
        Box::leak(Box::new(alarms))
    }

    fn poll(alarm: &mut Alarm, waker: &Waker) -> Poll<()> {
        Pin::new(alarm).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn due_alarms_fire_in_order_of_their_deadlines() {
        let (bell, fired) = bells();
        let (alarms, now) = (alarms(), SystemClock.now());
        for number in [3, 1, 2] {
            let seconds = Duration::from_secs(number);
            alarms.insert((now + seconds, number), &bell(number));
        }
        fire(alarms.take_due(now + Duration::from_secs(2)));
        assert_eq!(fired.try_iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(alarms.lock().len(), 1);
    }

    /// Parking for a day returns only because the new entry unparked this thread.
    #[test]
    fn new_first_entry_wakes_the_thread() {
        let (alarms, now) = (alarms(), SystemClock.now());
        for (number, delay) in (0..).zip([2 * DAY, DAY]) {
            alarms.insert((now + delay, number), Waker::noop());
            thread::park_timeout(DAY);
        }
        assert_eq!(alarms.lock().len(), 2);
    }

    #[test]
    fn dropped_alarm_removes_its_entry() {
        let mut alarm = Alarm::new(SystemClock.now().checked_add(DAY));
        assert!(poll(&mut alarm, Waker::noop()).is_pending());
        let entry = (alarm.deadline.unwrap(), alarm.number.unwrap());
        assert!(Alarms::get().lock().contains_key(&entry));
        drop(alarm);
        assert!(!Alarms::get().lock().contains_key(&entry));
    }

    #[test]
    fn latest_waker_is_called() {
        let (bell, fired) = bells();
        let (alarms, now) = (alarms(), SystemClock.now());
        alarms.insert((now, 1), &bell(1));
        alarms.insert((now, 1), &bell(2));
        fire(alarms.take_due(now));
        assert_eq!(fired.try_iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn panicking_waker_does_not_stop_the_others() {
        let (bell, fired) = bells();
        fire(vec![Waker::from(Arc::new(Panics)), bell(1)]);
        assert_eq!(fired.try_recv(), Ok(1));
    }

    #[test]
    fn alarm_beyond_the_range_of_instant_never_fires() {
        let mut alarm = Alarm::new(SystemClock.now().checked_add(Duration::MAX));
        assert!(poll(&mut alarm, Waker::noop()).is_pending());
        assert_eq!(alarm.number, None, "it needs no entry");
    }

    #[test]
    fn thread_of_the_process_fires_alarms() {
        let soon = SystemClock.now() + Duration::from_millis(1);
        futures_executor::block_on(Alarm::new(Some(soon)));
        assert!(SystemClock.now() >= soon);
    }
}
