//! The queue's state and the model of it, led through the same steps.

use std::collections::VecDeque;
use std::fmt::Debug;

use super::super::{Fifo, Line, Nanos, Rules, State, Taken};
use super::model::{Key, Model};
use crate::queue::delay::Progress;
use crate::queue::offer::Owned;
use crate::queue::options::AddedAll;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Add(Key),
    AddAfter(Key, Nanos),
    AddFailed(Key),
    Postpone(Key, Nanos),
    Remove(Key),
    Forget(Key),
    /// Adds this key and the ones before it, in one call.
    AddMany(Key),
    Take,
    /// Takes up to this many keys in one call.
    TakeMany(usize),
    /// Ends the lease that has been out longest.
    Finish(End),
    /// Ends all leases, in one call; whether they succeeded.
    DoneMany(bool),
    /// Time passes, and keys that are due become ready.
    CatchUp(Nanos),
    Close,
    CloseNow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Succeed,
    Retry,
    RetryAfter(Nanos),
}

/// What the state is built with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) absorb: bool,
    pub(super) max_tracked: usize,
    /// Whether the order is behind a pointer, as one of the user's is.
    pub(super) boxed: bool,
    /// How long one unit of the delays in the steps is: delays that differ by little and
    /// by much are kept in different places.
    pub(super) unit: Nanos,
}

pub(super) struct Driver<K> {
    state: State<K>,
    pub(super) model: Model,
    make: fn(Key) -> K,
    keys: Key,
    leases: VecDeque<Taken<K>>,
    now: Nanos,
    unit: Nanos,
}

/// Few different hashes, so that keys collide.
fn hash(key: Key) -> u32 {
    u32::from(key % 2)
}

/// How long a key waits that failed so often.
fn backoff(failures: u32) -> Nanos {
    Nanos::from(failures) - 1
}

impl<K: Clone + Eq + Debug> Driver<K> {
    pub(super) fn new(setting: Setting, keys: Key, make: fn(Key) -> K) -> Self {
        let Setting { absorb, max_tracked, boxed, unit } = setting;
        let fifo = Fifo::new();
        let line = if boxed { Line::other(Box::new(fifo)) } else { Line::Fifo(fifo) };
        let rules = Rules { line, absorb, capacity: 0, max_tracked, timing: None };
        let model = Model::new(absorb, max_tracked);
        let (state, leases) = (State::new(rules), VecDeque::new());
        Self { state, model, make, keys, leases, now: 0, unit }
    }

    fn offer(&self, key: Key) -> Owned<K> {
        Owned::new((self.make)(key))
    }

    /// The time in `units` units from now.
    fn after(&self, units: Nanos) -> Nanos {
        self.now + units * self.unit
    }

    /// Takes one step in both; what they answer must be the same.
    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Add(key) => {
                let added = self.state.add(hash(key), &mut self.offer(key), 0);
                assert_eq!(added, self.model.add(key));
            }
            Step::AddAfter(key, delay) => self.add_after(key, self.after(delay)),
            Step::AddFailed(key) => self.add_failed(key),
            Step::Postpone(key, delay) => {
                let (offer, deadline) = (&mut self.offer(key), self.after(delay));
                let postponed = self.state.postpone(hash(key), offer, deadline);
                assert_eq!(postponed, self.model.postpone(key, deadline));
            }
            Step::Remove(key) => {
                let (removed, _) = self.state.remove(hash(key), &(self.make)(key));
                assert_eq!(removed, self.model.remove(key));
            }
            Step::Forget(key) => {
                drop(self.state.forget(hash(key), &(self.make)(key)));
                self.model.forget(key);
            }
            Step::AddMany(last) => self.add_many(last),
            Step::Take => self.take(),
            Step::TakeMany(max) => self.take_many(max),
            Step::Finish(end) => self.finish(end),
            Step::DoneMany(succeeded) => self.done_many(succeeded),
            Step::CatchUp(time) => {
                self.now = self.after(time);
                while self.state.end_delays(self.now) == Progress::More {}
                self.model.advance(self.now);
            }
            Step::Close => self.close(),
            Step::CloseNow => self.close_now(),
        }
    }

    fn add_many(&mut self, last: Key) {
        let mut offers: Vec<_> =
            (0..=last).map(|key| (hash(key), self.offer(key))).collect();
        let (mut tally, mut expected) = (AddedAll::default(), AddedAll::default());
        let open = self.state.add_many(&mut offers, &mut tally);
        assert_eq!(open, !self.model.is_closed());
        (0..=last)
            .filter_map(|key| self.model.add(key))
            .for_each(|it| expected.count(it));
        assert_eq!(tally, expected);
    }

    fn add_after(&mut self, key: Key, deadline: Nanos) {
        let added = self.state.add_at(hash(key), &mut self.offer(key), deadline, 0);
        assert_eq!(added, self.model.add_at(key, deadline));
    }

    fn add_failed(&mut self, key: Key) {
        let (now, offer) = (self.now, &mut self.offer(key));
        let deadline = self.after(backoff(self.model.retries(key) + 1));
        let when = |failures: &mut u32| {
            *failures += 1;
            deadline
        };
        let added = self.state.add_failed(hash(key), offer, when, now, 0);
        if self.model.is_closed() {
            return assert_eq!(added, None);
        }
        let expected = match backoff(self.model.fail(key)) {
            0 => self.model.add(key),
            delay => self.model.add_at(key, self.after(delay)),
        };
        assert_eq!(added, expected);
    }

    fn take(&mut self) {
        let taken = self.state.take();
        let key = taken.as_ref().map(|taken| taken.key.clone());
        assert_eq!(key, self.model.get().map(self.make));
        self.leases.extend(taken);
    }

    fn take_many(&mut self, max: usize) {
        let taken = self.state.take_many(max);
        let keys: Vec<_> = taken.iter().map(|taken| taken.key.clone()).collect();
        let expected: Vec<_> = (0..max).map_while(|_| self.model.get()).collect();
        assert_eq!(keys, expected.into_iter().map(self.make).collect::<Vec<_>>());
        self.leases.extend(taken);
    }

    fn done_many(&mut self, succeeded: bool) {
        let taken: Vec<_> = std::mem::take(&mut self.leases).into();
        let keys: Vec<_> = taken.iter().map(|taken| self.key(&taken.key)).collect();
        let slots = taken.iter().map(|taken| taken.slot);
        drop(self.state.done_many(slots, succeeded));
        for key in keys {
            if succeeded {
                self.model.forget(key);
            }
            self.model.done(key);
        }
    }

    fn key(&self, value: &K) -> Key {
        let key = (0..self.keys).find(|key| (self.make)(*key) == *value);
        key.expect("the state delivers keys that were added")
    }

    fn finish(&mut self, end: End) {
        let Some(Taken { slot, key, .. }) = self.leases.pop_front() else { return };
        let key = self.key(&key);
        if let End::Succeed | End::RetryAfter(_) = end {
            self.state.clear_failures(slot);
            self.model.forget(key);
        }
        match end {
            End::Done | End::Succeed => {}
            End::Retry => {
                *self.state.failures(slot) += 1;
                let delay = backoff(self.model.fail(key));
                self.come_again(slot, key, delay);
            }
            End::RetryAfter(delay) => self.come_again(slot, key, delay),
        }
        drop(self.state.done(slot));
        self.model.done(key);
    }

    /// As the shell does it: at once if there is no delay, unless the queue is closed.
    fn come_again(&mut self, slot: u32, key: Key, delay: Nanos) {
        let deadline = self.after(delay);
        if delay == 0 && !self.model.is_closed() {
            assert_eq!(Some(self.state.add_slot(slot, 0)), self.model.add(key));
        } else {
            let delayed = self.state.delay_slot(slot, deadline, 0);
            assert_eq!(delayed, self.model.wait(key, deadline));
        }
    }

    fn close(&mut self) {
        self.state.close();
        self.model.close();
    }

    fn close_now(&mut self) {
        self.close();
        let before = self.model.counts();
        let undelivered = self.state.take_undelivered();
        let mut expected: Vec<K> =
            self.model.undelivered().into_iter().map(self.make).collect();
        // The order among dirty keys is not promised.
        let dirty = before.ready..before.ready + before.dirty;
        let (ours, theirs) = (&undelivered[dirty.clone()], &mut expected[dirty]);
        assert!(ours.iter().all(|key| theirs.contains(key)));
        theirs.clone_from_slice(ours);
        assert_eq!(undelivered, expected);
    }

    /// Compares all that can be asked of both.
    pub(super) fn compare(&self) {
        self.state.check_rules();
        let counts = self.state.counts();
        assert_eq!(counts, self.model.counts());
        assert_eq!(self.state.is_closed(), self.model.is_closed());
        assert_eq!(self.state.is_drained(), counts.ready + counts.processing == 0);
        let delayed = counts.delayed > 0 && !self.model.is_closed();
        assert_eq!(self.state.is_idle(), self.state.is_drained() && !delayed);
        for key in 0..self.keys {
            let (hash, value) = (hash(key), (self.make)(key));
            assert_eq!(self.state.contains(hash, &value), self.model.contains(key));
            assert_eq!(self.state.num_failures(hash, &value), self.model.retries(key));
        }
        // It may come too early, for a delay that was removed, but not too late.
        let (next, earliest) = (self.state.next_deadline(), self.model.next());
        assert_eq!(next.is_some(), earliest.is_some());
        assert!(next <= earliest, "{next:?} is after {earliest:?}");
    }

    /// Hands out what is left: both must do it in the same order.
    pub(super) fn drain(&mut self) {
        while self.model.counts().ready > 0 {
            self.take();
        }
        self.take();
        self.state.check();
        while !self.leases.is_empty() {
            self.finish(End::Done);
        }
        self.compare();
    }
}
