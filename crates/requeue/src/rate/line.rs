//! The line: threads and tasks that wait for a limiter, in the order in which they came.
//!
//! Only the first waiter holds a reservation. The others hold a place, which costs nothing
//! when they leave. When the time of the first waiter has come, it is *granted* its tokens
//! and leaves the line, and the next one reserves. A waiter reserves as of the time at
//! which it joined, so without cancellations the times are those of a chain of
//! reservations, however late the line is looked at.
//!
//! Nothing here locks, reads a clock or calls a waker. A limiter keeps its line under a
//! lock and passes itself as a [`Meter`]; the [`Wakes`] are for after the lock.
//!
//! # Invariants
//!
//! 1. `held` belongs to the first entry of `waiting`. Without it, the first waiter asked
//!    for tokens that never come at the present limit, or the line is not settled yet.
//! 2. `wanted` is the number of tokens that the waiters without a reservation want.
//! 3. A ticket is in `waiting` or in `settled` until its owner collects it or leaves.
//! 4. Each waiter sleeps until its own time at the latest: the first until its tokens may
//!    be used, another until they would be if no waiter left. Every look settles the whole
//!    line. So a waiter that is neither polled nor dropped delays no other one.
//! 5. A waiter whose time becomes earlier, or whose ticket is settled, is woken, unless it
//!    was woken before and has not looked since.

use std::collections::BTreeMap;

use super::bucket::{Ask, Refusal};
use super::moment::Moment;
use crate::wake::{Wake, Wakes};

/// A limiter as its line sees it.
pub(super) trait Meter {
    type Claim;

    /// Takes tokens, now or from the future, however long the wait.
    fn reserve(&mut self, ask: Ask) -> Result<Held<Self::Claim>, Refusal>;

    /// Gives back tokens that were not used, as far as the limit permits.
    fn give_back(&mut self, claim: Self::Claim, now: Moment);

    /// When `ask` would be served after `ahead` other tokens.
    fn expect(&self, ask: Ask, ahead: u64) -> Result<Moment, Refusal>;

    /// Replaces a reservation by one that acts earlier, if there is one now.
    fn renew(&mut self, _held: &mut Held<Self::Claim>, _ask: Ask, _now: Moment) {}
}

/// Tokens that may be used from `ready` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<C> {
    pub(super) ready: Moment,
    pub(super) claim: C,
}

/// The name of a waiter in its line. Earlier waiters have smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The answer to a waiter.
#[derive(Debug)]
pub(super) enum Look<C> {
    /// The wait has ended, and the waiter is no longer in the line.
    Done(Result<Held<C>, Refusal>),
    /// Look again at this time, or when woken.
    Wait(Ticket, Moment),
}

#[derive(Debug)]
struct Waiter {
    /// As of the time at which it joined.
    ask: Ask,
    /// `None` if it was woken and has not looked since.
    wake: Option<Wake>,
    /// When it would be served if no waiter left.
    expected: Moment,
    /// When its timer fires.
    asleep_until: Moment,
}

/// The waiters of one limiter.
#[derive(Debug)]
pub(super) struct Line<C> {
    waiting: BTreeMap<Ticket, Waiter>,
    settled: BTreeMap<Ticket, Result<Held<C>, Refusal>>,
    held: Option<Held<C>>,
    wanted: u64,
    issued: u64,
}

impl<C> Line<C> {
    pub(super) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            settled: BTreeMap::new(),
            held: None,
            wanted: 0,
            issued: 0,
        }
    }

    /// Whether no waiter is in line.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no ticket is in use.
    pub(super) fn is_unused(&self) -> bool {
        self.waiting.is_empty() && self.settled.is_empty()
    }

    /// How many tokens the waiters without a reservation want.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Serves `ask` at once, or puts it at the end of the line.
    pub(super) fn join(
        &mut self,
        meter: &mut impl Meter<Claim = C>,
        ask: Ask,
        wake: Wake,
    ) -> (Look<C>, Wakes) {
        let now = ask.at.given();
        let mut wakes = self.settle(meter, now);
        match self.admit(meter, ask) {
            Ok(Admission::Served(held)) => {
                wakes.discard(Some(wake));
                (Look::Done(Ok(held)), wakes)
            }
            Ok(Admission::Waits(expected)) => {
                let ticket = self.push(ask, expected);
                (self.sleep(ticket, now, wake), wakes)
            }
            Err(refusal) => {
                wakes.discard(Some(wake));
                (Look::Done(Err(refusal)), wakes)
            }
        }
    }

    /// Takes what `ask` needs if the line is empty; otherwise finds out whether its turn
    /// would come in time.
    fn admit(
        &mut self,
        meter: &mut impl Meter<Claim = C>,
        ask: Ask,
    ) -> Result<Admission<C>, Refusal> {
        if !self.is_empty() {
            let expected = meter.expect(ask, self.wanted)?;
            ask.patience.bear(expected.since(ask.at.given()))?;
            self.wanted += u64::from(ask.n);
            return Ok(Admission::Waits(expected));
        }
        let held = meter.reserve(ask)?;
        if held.ready <= ask.at.given() {
            return Ok(Admission::Served(held));
        }
        let expected = held.ready;
        self.held = Some(held);
        Ok(Admission::Waits(expected))
    }

    /// Appends a waiter that has neither a waker nor a timer yet.
    pub(super) fn push(&mut self, ask: Ask, expected: Moment) -> Ticket {
        let ticket = Ticket(self.issued);
        self.issued += 1;
        let asleep_until = Moment::END;
        self.waiting.insert(ticket, Waiter { ask, wake: None, expected, asleep_until });
        ticket
    }

    /// Looks whether the time of `ticket` has come. If not, `wake` replaces its waker.
    pub(super) fn look(
        &mut self,
        meter: &mut impl Meter<Claim = C>,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (Look<C>, Wakes) {
        // Its own waker goes first: a waiter that looks need not be woken.
        let old = self.waiting.get_mut(&ticket).and_then(|waiter| waiter.wake.take());
        let mut wakes = self.settle(meter, now);
        wakes.discard(old);
        let answer = self.settled.remove(&ticket).or_else(|| self.expire(ticket, now));
        let look = match answer {
            Some(answer) => {
                wakes.discard(Some(wake));
                wakes.append(self.settle(meter, now));
                Look::Done(answer)
            }
            None => self.sleep(ticket, now, wake),
        };
        (look, wakes)
    }

    /// Ends a waiter whose deadline has come before its turn.
    fn expire(
        &mut self,
        ticket: Ticket,
        now: Moment,
    ) -> Option<Result<Held<C>, Refusal>> {
        // The first waiter with a reservation was refused or promised its tokens in time.
        let has_tokens = self.held.is_some() && self.is_first(ticket);
        let waiter = self.waiting.get(&ticket)?;
        if has_tokens || now < waiter.ask.deadline() {
            return None;
        }
        let (ask, expected) = (waiter.ask, waiter.expected.max(now));
        drop(self.waiting.remove(&ticket)); // its waker has been taken out
        self.wanted -= u64::from(ask.n);
        Some(Err(Refusal::TooLate(expected.since(ask.at.given()))))
    }

    /// Notes how to wake a waiter, and returns the end of its sleep (invariant 4).
    fn sleep(&mut self, ticket: Ticket, now: Moment, wake: Wake) -> Look<C> {
        let is_first = self.is_first(ticket);
        let held = self.held.as_ref().map(|held| held.ready);
        let waiter = self.waiting.get_mut(&ticket).expect("invariant 3");
        let until = match held {
            _ if !is_first && waiter.expected > now => waiter.expected,
            // The line is slower than expected: sleep as long again.
            _ if !is_first => now.plus(now.since(waiter.ask.at.given()).max(1)),
            Some(ready) => ready,
            None => Moment::END,
        };
        waiter.asleep_until = until.min(waiter.ask.deadline().max(now.plus(1)));
        waiter.wake = Some(wake);
        Look::Wait(ticket, waiter.asleep_until)
    }

    /// Takes a waiter out. Unused tokens go back, and the next waiter takes its place.
    pub(super) fn leave(
        &mut self,
        meter: &mut impl Meter<Claim = C>,
        ticket: Ticket,
        now: Moment,
    ) -> Wakes {
        let (unused, wake) = self.remove(ticket);
        let mut wakes = match unused {
            Some(Held { claim, .. }) => {
                meter.give_back(claim, now);
                self.tokens_came(meter, now)
            }
            None => self.settle(meter, now),
        };
        wakes.discard(wake);
        wakes
    }

    /// Forgets a ticket. Returns the tokens it held, and its waker.
    fn remove(&mut self, ticket: Ticket) -> (Option<Held<C>>, Option<Wake>) {
        if let Some(answer) = self.settled.remove(&ticket) {
            return (answer.ok(), None);
        }
        let held = if self.is_first(ticket) { self.held.take() } else { None };
        let Some(waiter) = self.waiting.remove(&ticket) else { return (held, None) };
        if held.is_none() {
            self.wanted -= u64::from(waiter.ask.n); // invariant 2
        }
        (held, waiter.wake)
    }

    /// Lets the line profit from tokens that came back.
    pub(super) fn tokens_came(
        &mut self,
        meter: &mut impl Meter<Claim = C>,
        now: Moment,
    ) -> Wakes {
        if let (Some(held), Some((_, first))) =
            (&mut self.held, self.waiting.first_key_value())
        {
            meter.renew(held, first.ask, now);
        }
        self.settle(meter, now)
    }

    /// Ends the waiters whose requests became impossible, and moves the others up.
    pub(super) fn terms_changed(
        &mut self,
        meter: &mut impl Meter<Claim = C>,
        now: Moment,
    ) -> Wakes {
        let mut wakes = Wakes::default();
        let reserved = usize::from(self.held.is_some());
        let impossible: Vec<_> = self
            .waiting
            .iter()
            .skip(reserved)
            .filter_map(|(ticket, waiter)| match meter.expect(waiter.ask, 0) {
                Err(refusal @ Refusal::ExceedsBurst(_)) => Some((*ticket, refusal)),
                Ok(_) | Err(_) => None,
            })
            .collect();
        for (ticket, refusal) in impossible {
            self.wanted -= self.settle_one(ticket, Err(refusal), &mut wakes);
        }
        wakes.append(self.tokens_came(meter, now));
        wakes
    }

    /// Grants the first waiters their tokens as far as their times have come, and lets the
    /// next one reserve.
    pub(super) fn settle(
        &mut self,
        meter: &mut impl Meter<Claim = C>,
        now: Moment,
    ) -> Wakes {
        let mut wakes = Wakes::default();
        while let Some((&ticket, first)) = self.waiting.first_key_value() {
            let n = u64::from(first.ask.n);
            let held = match self.held.take() {
                Some(held) => Ok(held),
                None => match meter.reserve(first.ask) {
                    // It stays the first until the limit or the tokens change.
                    Err(Refusal::Never | Refusal::NotNow) => break,
                    answer => {
                        self.wanted -= n;
                        answer
                    }
                },
            };
            match held {
                Ok(held) if held.ready > now => {
                    self.hold(held, &mut wakes);
                    break;
                }
                answer => {
                    self.settle_one(ticket, answer, &mut wakes);
                }
            }
        }
        wakes
    }

    /// Notes the reservation of the first waiter, which is woken if it would oversleep.
    fn hold(&mut self, held: Held<C>, wakes: &mut Wakes) {
        if let Some(mut first) = self.waiting.first_entry() {
            let waiter = first.get_mut();
            if held.ready < waiter.asleep_until {
                wakes.push(waiter.wake.take());
            }
        }
        self.held = Some(held);
    }

    /// Ends the wait of `ticket`, and returns how many tokens it wanted.
    fn settle_one(
        &mut self,
        ticket: Ticket,
        answer: Result<Held<C>, Refusal>,
        wakes: &mut Wakes,
    ) -> u64 {
        let Some(waiter) = self.waiting.remove(&ticket) else { return 0 };
        self.settled.insert(ticket, answer);
        wakes.push(waiter.wake);
        u64::from(waiter.ask.n)
    }

    /// What a waiter in line asked for.
    pub(super) fn ask(&self, ticket: Ticket) -> Ask {
        self.waiting.get(&ticket).expect("invariant 3").ask
    }

    /// Lets a waiter sleep until `until`, for a limiter that serves the first one itself.
    pub(super) fn rest(
        &mut self,
        ticket: Ticket,
        until: Moment,
        wake: Wake,
    ) -> (Look<C>, Wakes) {
        let waiter = self.waiting.get_mut(&ticket).expect("invariant 3");
        waiter.asleep_until = until;
        let mut wakes = Wakes::default();
        wakes.discard(waiter.wake.replace(wake));
        (Look::Wait(ticket, until), wakes)
    }

    /// Takes a waiter out, and wakes the one that becomes the first by it.
    pub(super) fn step_aside(&mut self, ticket: Ticket) -> Wakes {
        let mut wakes = Wakes::default();
        let was_first = self.is_first(ticket);
        let old = self.waiting.remove(&ticket).and_then(|waiter| waiter.wake);
        wakes.discard(old);
        if let Some(mut first) = self.waiting.first_entry().filter(|_| was_first) {
            wakes.push(first.get_mut().wake.take());
        }
        wakes
    }

    pub(super) fn is_first(&self, ticket: Ticket) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }

    /// When the tokens of the first waiter may be used, and when its timer fires.
    #[cfg(all(test, requeue_loom))]
    pub(super) fn first_sleep(&self) -> Option<(Moment, Moment)> {
        let (_, first) = self.waiting.first_key_value()?;
        Some((self.held.as_ref()?.ready, first.asleep_until))
    }

    /// Panics unless the invariants hold.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let reserved = usize::from(self.held.is_some());
        assert!(self.waiting.len() >= reserved, "invariant 1");
        let wanted = self.waiting.values().skip(reserved).map(|w| u64::from(w.ask.n));
        assert_eq!(wanted.sum::<u64>(), self.wanted, "invariant 2");
        let both = self.settled.keys().any(|ticket| self.waiting.contains_key(ticket));
        assert!(!both, "invariant 3");
    }
}

/// How a request enters the line.
enum Admission<C> {
    Served(Held<C>),
    /// It is expected to be served at this time.
    Waits(Moment),
}

#[cfg(test)]
mod tests;
