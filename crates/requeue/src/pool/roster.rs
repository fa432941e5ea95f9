//! Who works for a pool, on which key, and who is one too many.
//!
//! Every worker has a seat from before it starts until it has left. Nothing here runs a
//! handler or touches a queue.
//!
//! # Invariants
//!
//! 1. `staying` is the number of seats whose worker has not been excused.
//! 2. `recall` is true whenever more workers stay than are wanted. It is written with the
//!    lock held, before the workers are woken, so a worker that reads it before it parks
//!    either sees it or is woken.
//! 3. A worker ends its lease before it gives up its seat: once no seat is taken, no key
//!    is with a worker of this pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, MutexGuard, lock};

/// The workers of one pool.
pub(super) struct Roster<K> {
    staff: Mutex<Staff<K>>,
    /// Read by each worker before each key; see invariant 2.
    recall: AtomicBool,
    /// Whether runs that can be cancelled are to be. Never taken back.
    cancel: AtomicBool,
}

struct Staff<K> {
    wanted: usize,
    staying: usize,
    hired_so_far: u64,
    desks: BTreeMap<u64, Arc<Desk<K>>>,
    /// Who waits for the last worker to leave.
    watchers: Vec<Waker>,
}

/// What others see of one worker.
struct Desk<K> {
    /// How to reach the worker while it waits.
    waker: Mutex<Option<Waker>>,
    running: Mutex<Option<K>>,
}

/// The place of one worker; dropping it gives it up.
pub(super) struct Seat<K> {
    roster: Arc<Roster<K>>,
    desk: Arc<Desk<K>>,
    id: u64,
    excused: bool,
}

impl<K> Roster<K> {
    pub(super) fn new() -> Self {
        let staff = Staff {
            wanted: 0,
            staying: 0,
            hired_so_far: 0,
            desks: BTreeMap::new(),
            watchers: Vec::new(),
        };
        Self {
            staff: Mutex::new(staff),
            recall: AtomicBool::new(false),
            cancel: AtomicBool::new(false),
        }
    }

    /// How many workers there are to be.
    pub(super) fn wanted(&self) -> usize {
        lock(&self.staff).wanted
    }

    /// Sets how many workers there are to be, and tells those who wait for a key.
    pub(super) fn want(&self, wanted: usize) {
        let mut staff = lock(&self.staff);
        staff.wanted = wanted;
        self.call_to_all(staff);
    }

    /// Settles for the workers that there are: how many that is.
    pub(super) fn make_do(&self) -> usize {
        let mut staff = lock(&self.staff);
        staff.wanted = staff.wanted.min(staff.staying);
        staff.wanted
    }

    /// Gives a seat to fill if a worker is missing.
    pub(super) fn vacancy(self: &Arc<Self>) -> Option<Seat<K>> {
        let mut staff = lock(&self.staff);
        if staff.staying >= staff.wanted {
            return None;
        }
        let desk = Arc::new(Desk { waker: Mutex::new(None), running: Mutex::new(None) });
        staff.staying += 1;
        staff.hired_so_far += 1;
        let id = staff.hired_so_far;
        staff.desks.insert(id, Arc::clone(&desk));
        drop(staff);
        Some(Seat { roster: Arc::clone(self), desk, id, excused: false })
    }

    /// Has everybody leave, in the middle of a run if it can be cancelled: the keys that
    /// were running.
    pub(super) fn dismiss(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut staff = lock(&self.staff);
        let running = |desk: &Arc<Desk<K>>| lock(&desk.running).clone();
        let keys = staff.desks.values().filter_map(running).collect();
        staff.wanted = 0;
        self.cancel.store(true, Ordering::Release);
        self.call_to_all(staff);
        keys
    }

    /// Whether all have left; if not, wakes the task when they have.
    pub(super) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut staff = lock(&self.staff);
        if staff.desks.is_empty() {
            return Poll::Ready(());
        }
        if !staff.watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
            staff.watchers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Restores invariant 2, unlocks, and wakes.
    fn call_to_all(&self, staff: MutexGuard<'_, Staff<K>>) {
        self.note(&staff);
        let desks: Vec<_> = staff.desks.values().cloned().collect();
        drop(staff);
        for waker in desks.iter().filter_map(|desk| lock(&desk.waker).take()) {
            waker.wake();
        }
    }

    fn note(&self, staff: &Staff<K>) {
        self.recall.store(staff.staying > staff.wanted, Ordering::Release);
    }
}

impl<K> Seat<K> {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whether this worker is one too many; if so, it counts as gone from then on.
    pub(super) fn excuse(&mut self) -> bool {
        if !self.excused && self.roster.recall.load(Ordering::Acquire) {
            let mut staff = lock(&self.roster.staff);
            if staff.staying > staff.wanted {
                staff.staying -= 1;
                self.excused = true;
                self.roster.note(&staff);
            }
        }
        self.excused
    }

    /// Whether the run that is under way is to be cancelled.
    #[cfg(feature = "tokio")]
    pub(super) fn is_cancelled(&self) -> bool {
        self.roster.cancel.load(Ordering::Acquire)
    }

    /// Has `waker` woken when there may be news. Look at the news after this, not before.
    pub(super) fn listen(&self, waker: &Waker) {
        let mut listening = lock(&self.desk.waker);
        if !listening.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *listening = Some(waker.clone());
        }
    }

    /// Says on which key the worker works.
    pub(super) fn run(&self, key: Option<K>) {
        let before = std::mem::replace(&mut *lock(&self.desk.running), key);
        drop(before);
    }
}

impl<K> Drop for Seat<K> {
    fn drop(&mut self) {
        let mut staff = lock(&self.roster.staff);
        if !self.excused {
            staff.staying -= 1;
        }
        staff.desks.remove(&self.id);
        self.roster.note(&staff);
        let last = staff.desks.is_empty();
        let watchers =
            if last { std::mem::take(&mut staff.watchers) } else { Vec::new() };
        drop(staff);
        watchers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staffed(wanted: usize) -> (Arc<Roster<u32>>, Vec<Seat<u32>>) {
        let roster = Arc::new(Roster::new());
        roster.want(wanted);
        let seats = std::iter::from_fn(|| roster.vacancy()).collect();
        (roster, seats)
    }

    #[test]
    fn there_are_as_many_seats_as_workers_are_wanted() {
        let (roster, mut seats) = staffed(3);
        assert_eq!(seats.len(), 3);
        assert!(seats.iter_mut().all(|seat| !seat.excuse()));
        drop(seats.pop());
        assert!(roster.vacancy().is_some());
    }

    #[test]
    fn only_those_too_many_are_excused() {
        let (roster, mut seats) = staffed(4);
        roster.want(1);
        let excused = seats.iter_mut().filter_map(|seat| seat.excuse().then_some(()));
        assert_eq!(excused.count(), 3);
        assert!(roster.vacancy().is_none());
        roster.want(2);
        assert!(roster.vacancy().is_some(), "the excused do not come back");
    }

    #[test]
    fn recall_that_is_taken_back_excuses_nobody() {
        let (roster, mut seats) = staffed(2);
        roster.want(0);
        roster.want(2);
        assert!(seats.iter_mut().all(|seat| !seat.excuse()));
    }

    #[test]
    fn dismissal_names_the_keys_that_run() {
        let (roster, seats) = staffed(3);
        seats[0].run(Some(7));
        seats[2].run(Some(9));
        seats[1].run(Some(8));
        seats[1].run(None);
        assert_eq!(roster.dismiss(), [7, 9]);
    }

    #[test]
    fn all_have_left_when_the_last_seat_is_given_up() {
        let (roster, mut seats) = staffed(2);
        let mut cx = Context::from_waker(Waker::noop());
        roster.want(0);
        assert!(seats.iter_mut().all(Seat::excuse));
        drop(seats.pop());
        assert!(roster.poll_left(&mut cx).is_pending(), "an excused worker still sits");
        drop(seats);
        assert!(roster.poll_left(&mut cx).is_ready());
    }

    #[test]
    fn making_do_lowers_what_is_wanted_and_never_raises_it() {
        let (roster, mut seats) = staffed(3);
        roster.want(5);
        assert_eq!(roster.make_do(), 3);
        roster.want(1);
        assert_eq!(roster.make_do(), 1);
        assert!(seats.iter_mut().any(Seat::excuse));
    }
}
