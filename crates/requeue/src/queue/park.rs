//! Workers that wait for a key, threads and tasks alike.
//!
//! A getter that finds no key parks: it leaves its [`Wake`] here, under the queue's
//! lock, and sleeps without it. Whoever makes a key ready takes a parked getter out and
//! wakes it once the lock is free. That getter then looks again, under the lock, and is
//! *on its way* until it does.
//!
//! One of the parked getters is the *leader*: it alone sleeps no longer than until the
//! next delay is over. The queue needs no thread of its own for that.
//!
//! # Invariants
//!
//! They hold whenever the lock is free; [`Park::settle`] restores them.
//!
//! 1. If a getter is parked, at least as many getters are on their way as keys are ready.
//! 2. If a getter is parked and a key is delayed, there is a leader, it is parked, and it
//!    sleeps until no later than the next deadline, or has been told to look again.
//! 3. A getter that was taken out counts as on its way until it arrives or leaves.
//!
//! No wake-up is lost: a getter looks for a key and parks in one lock scope, so a key
//! that becomes ready is either seen by that look or finds the getter parked. A getter
//! that gives up while it is on its way says so, and invariant 1 then wakes another. The
//! worker that takes a key may be one that never slept: the one that was woken for it
//! parks again, in its old place.

use std::collections::VecDeque;
use std::task::Waker;

use super::timing::Nanos;
use crate::sync::thread::Thread;

/// How to wake a parked getter.
#[derive(Clone)]
pub(super) enum Wake {
    Thread(Thread),
    Task(Waker),
}

impl Wake {
    pub(super) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

/// A wake-up that nobody needs any more.
///
/// To drop a waker may be to drop the last hold on its task, with a lease of this queue
/// in it; and to clone one runs the executor's code. Neither is done with the lock held.
#[derive(Default)]
#[must_use = "to be dropped without the lock"]
#[expect(dead_code, reason = "kept to be dropped")]
pub(super) struct Spent(Option<Wake>);

/// Getters to wake as soon as the lock is free.
#[derive(Default)]
#[must_use = "a getter that is not woken sleeps for ever"]
pub(super) struct Wakes {
    first: Option<Wake>,
    rest: Vec<Wake>,
}

impl Wakes {
    pub(super) fn push(&mut self, wake: Wake) {
        if self.first.is_none() {
            self.first = Some(wake);
        } else {
            self.rest.push(wake);
        }
    }

    /// Wakes them all. Never with the lock held: a waker may run its task at once.
    pub(super) fn wake(self) {
        if let Some(wake) = self.first {
            wake.wake();
            self.rest.into_iter().for_each(Wake::wake);
        }
    }
}

/// A parked getter's name. Who came first has the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ParkedId(u64);

struct Parked {
    id: ParkedId,
    wake: Wake,
}

struct Leader {
    id: ParkedId,
    /// Until when it sleeps, or will as soon as it has looked again.
    until: Nanos,
}

/// The getters of one queue that wait.
#[derive(Default)]
pub(super) struct Park {
    /// In the order of their names.
    parked: VecDeque<Parked>,
    on_their_way: usize,
    leader: Option<Leader>,
    named: u64,
}

impl Park {
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Parks a getter, or renews the wake-up of one that is parked. One that was woken in
    /// vain gets its old place back.
    pub(super) fn park(&mut self, id: Option<ParkedId>, wake: Wake) -> (ParkedId, Spent) {
        let id = id.unwrap_or_else(|| {
            self.named += 1;
            ParkedId(self.named)
        });
        match self.find(id) {
            Ok(place) => {
                let spent = std::mem::replace(&mut self.parked[place].wake, wake);
                (id, Spent(Some(spent)))
            }
            Err(place) => {
                self.parked.insert(place, Parked { id, wake });
                (id, Spent(None))
            }
        }
    }

    /// Notes that a getter looks for a key. It stays parked unless it was taken out.
    pub(super) fn arrive(&mut self, id: ParkedId) {
        if self.find(id).is_err() {
            self.on_their_way -= 1;
        }
    }

    /// Takes out a getter that waits no more and has arrived: it has a key, or gives up.
    pub(super) fn unpark(&mut self, id: ParkedId) -> Spent {
        let place = self.find(id).ok();
        Spent(place.and_then(|place| self.take_out(place)).map(|parked| parked.wake))
    }

    /// Lets a parked getter lead, unless another does: until when it may sleep.
    pub(super) fn lead(&mut self, id: ParkedId, next: Option<Nanos>) -> Option<Nanos> {
        if self.leader.as_ref().is_some_and(|leader| leader.id != id) {
            return None;
        }
        self.leader = next.map(|until| Leader { id, until });
        next
    }

    /// Whether nobody is parked, so that the invariants hold whatever happens.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Restores the invariants, given how many keys are ready and when the next one is.
    pub(super) fn settle(&mut self, ready: usize, next: Option<Nanos>) -> Wakes {
        let mut wakes = Wakes::default();
        self.call_workers(ready, &mut wakes);
        self.call_leader(next, &mut wakes);
        wakes
    }

    /// Invariant 1.
    fn call_workers(&mut self, ready: usize, wakes: &mut Wakes) {
        while self.on_their_way < ready {
            let Some(wake) = self.call_one() else { break };
            wakes.push(wake);
        }
    }

    /// Takes out who has waited longest; the leader only if it is alone, so that the lead
    /// changes hands as seldom as can be.
    fn call_one(&mut self) -> Option<Wake> {
        let leads = |parked: &Parked| {
            self.leader.as_ref().is_some_and(|leader| leader.id == parked.id)
        };
        let place = usize::from(self.parked.len() > 1 && leads(self.parked.front()?));
        let parked = self.take_out(place)?;
        self.on_their_way += 1;
        Some(parked.wake)
    }

    /// Invariant 2.
    fn call_leader(&mut self, next: Option<Nanos>, wakes: &mut Wakes) {
        let (Some(until), Some(first)) = (next, self.parked.front()) else { return };
        let id = match &self.leader {
            Some(leader) if leader.until <= until => return,
            Some(leader) => leader.id,
            None => first.id,
        };
        if let Ok(place) = self.find(id) {
            wakes.push(self.parked[place].wake.clone());
        }
        self.leader = Some(Leader { id, until });
    }

    /// Takes out every getter: the queue is closed.
    pub(super) fn call_all(&mut self, wakes: &mut Wakes) {
        while let Some(wake) = self.call_one() {
            wakes.push(wake);
        }
    }

    fn take_out(&mut self, place: usize) -> Option<Parked> {
        let parked = self.parked.remove(place)?;
        if self.leader.as_ref().is_some_and(|leader| leader.id == parked.id) {
            self.leader = None;
        }
        Some(parked)
    }

    fn find(&self, id: ParkedId) -> Result<usize, usize> {
        self.parked.binary_search_by_key(&id, |parked| parked.id)
    }
}

/// Callers that wait for the queue to have nothing left to do. All of them look again
/// each time that is so.
#[derive(Default)]
pub(super) struct Watch {
    watching: Vec<(u64, Wake)>,
    named: u64,
}

impl Watch {
    pub(super) fn is_empty(&self) -> bool {
        self.watching.is_empty()
    }

    /// Waits, under the name of an earlier call if there was one.
    pub(super) fn watch(&mut self, id: Option<u64>, wake: Wake) -> (u64, Spent) {
        let id = id.unwrap_or_else(|| {
            self.named += 1;
            self.named
        });
        let spent = self.unwatch(id);
        self.watching.push((id, wake));
        (id, spent)
    }

    pub(super) fn unwatch(&mut self, id: u64) -> Spent {
        let place = self.watching.iter().position(|(other, _)| *other == id);
        Spent(place.map(|place| self.watching.swap_remove(place).1))
    }

    pub(super) fn call_all(&mut self, wakes: &mut Wakes) {
        for (_, wake) in self.watching.drain(..) {
            wakes.push(wake);
        }
    }
}
