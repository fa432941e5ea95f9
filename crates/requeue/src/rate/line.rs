//! The line: threads and tasks that wait for a limiter, in order of arrival.
//!
//! Only the first waiter holds a reservation. The others hold a position in the line, which
//! costs nothing when they leave. When the reservation of the first waiter is due, the waiter
//! is *granted* its tokens and leaves the line, and the next one reserves. A waiter reserves
//! as of the time at which it joined. So without cancellations the times equal those of a
//! chain of reservations, however late the line is polled.
//!
//! Nothing here locks, reads a clock or calls a waker. A limiter keeps its line under a lock
//! and passes its tokens as a [`TokenSource`]. It calls the returned [`Wakes`] after the lock
//! is released.
//!
//! # Invariants
//!
//! 1. `held` belongs to the first entry of `waiting`. If it is `None`, the first waiter wants
//!    tokens that never come at the current limit, or the line is not settled yet.
//! 2. `wanted` is the number of tokens wanted by waiters without a reservation.
//! 3. A ticket is in `waiting` or in `settled` until its owner collects it or leaves.
//! 4. Each waiter has its own timer. It fires when the waiter would be served if no waiter
//!    ahead of it left. Every poll settles the whole line. So a waiter that is neither polled
//!    nor dropped delays no other waiter.
//! 5. A waiter is woken when its time becomes earlier or its ticket is settled, unless it was
//!    woken before and has not polled since.

pub(super) mod wait;

use std::collections::BTreeMap;

use super::bucket::{Claim, Grant, Refusal, Request};
use super::moment::Moment;
use crate::wake::{Wake, Wakes};

/// The tokens of a limiter, as seen by its line.
pub(super) trait TokenSource {
    type Claim;

    /// Takes tokens, now or from the future, however long the wait.
    fn reserve(&mut self, request: Request) -> Result<Held<Self::Claim>, Refusal>;

    /// Gives back tokens that were not used, as far as the limit permits.
    fn give_back(&mut self, claim: Self::Claim, now: Moment);

    /// Returns when `request` would be served after `ahead` other tokens.
    fn expect(&self, request: Request, ahead: u64) -> Result<Moment, Refusal>;

    /// Replaces a reservation by one that acts earlier, if there is one now.
    fn renew(&mut self, _held: &mut Held<Self::Claim>, _ask: Request, _now: Moment) {}
}

/// Tokens that may be used from `ready` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<C> {
    pub(super) ready: Moment,
    pub(super) claim: C,
}

impl From<Grant> for Held<Option<Claim>> {
    fn from(Grant { ready, claim }: Grant) -> Self {
        Self { ready, claim }
    }
}

/// Identifies a waiter in its line. Earlier waiters have smaller tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The state of a wait after a look at the line.
#[derive(Debug)]
pub(super) enum LineStatus<C> {
    /// The wait has ended, and the waiter has left the line.
    Done(Result<Held<C>, Refusal>),
    /// Poll again at this time, or when woken.
    Wait(Ticket, Moment),
}

#[derive(Debug)]
struct Waiter {
    /// Made when the waiter joined.
    request: Request,
    /// `None` if it was woken and has not polled since.
    wake: Option<Wake>,
    /// When it would be served if no waiter left.
    expected: Moment,
    /// When its timer fires.
    asleep_until: Moment,
}

/// The waiters of one limiter.
#[derive(Debug)]
pub(super) struct WaiterLine<C> {
    waiting: BTreeMap<Ticket, Waiter>,
    settled: BTreeMap<Ticket, Result<Held<C>, Refusal>>,
    held: Option<Held<C>>,
    wanted: u64,
    issued: u64,
}

impl<C> WaiterLine<C> {
    pub(super) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            settled: BTreeMap::new(),
            held: None,
            wanted: 0,
            issued: 0,
        }
    }

    /// Returns whether no waiter is in line.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether no ticket is in use.
    pub(super) fn is_unused(&self) -> bool {
        self.waiting.is_empty() && self.settled.is_empty()
    }

    /// Returns how many tokens are wanted by waiters without a reservation.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Serves `request` at once, or appends it to the line.
    pub(super) fn join(
        &mut self,
        source: &mut impl TokenSource<Claim = C>,
        request: Request,
        wake: Wake,
    ) -> (LineStatus<C>, Wakes) {
        let now = request.at.given();
        let mut wakes = self.settle(source, now);
        match self.admit(source, request) {
            Ok(Admission::Served(held)) => {
                wakes.discard(Some(wake));
                (LineStatus::Done(Ok(held)), wakes)
            }
            Ok(Admission::Waits(expected)) => {
                let ticket = self.push(request, expected);
                (self.sleep(ticket, now, wake), wakes)
            }
            Err(refusal) => {
                wakes.discard(Some(wake));
                (LineStatus::Done(Err(refusal)), wakes)
            }
        }
    }

    /// Reserves for `request` if the line is empty. Otherwise checks whether it would be
    /// served in time.
    fn admit(
        &mut self,
        source: &mut impl TokenSource<Claim = C>,
        request: Request,
    ) -> Result<Admission<C>, Refusal> {
        if !self.is_empty() {
            let expected = source.expect(request, self.wanted)?;
            request.patience.accept(expected.since(request.at.given()))?;
            self.wanted += u64::from(request.n);
            return Ok(Admission::Waits(expected));
        }
        let held = source.reserve(request)?;
        if held.ready <= request.at.given() {
            return Ok(Admission::Served(held));
        }
        let expected = held.ready;
        self.held = Some(held);
        Ok(Admission::Waits(expected))
    }

    /// Appends a waiter that has neither a waker nor a timer yet.
    pub(super) fn push(&mut self, request: Request, expected: Moment) -> Ticket {
        let ticket = Ticket(self.issued);
        self.issued += 1;
        let asleep_until = Moment::END;
        self.waiting
            .insert(ticket, Waiter { request, wake: None, expected, asleep_until });
        ticket
    }

    /// Checks whether `ticket` is settled. If not, `wake` replaces its waker.
    pub(super) fn poll(
        &mut self,
        source: &mut impl TokenSource<Claim = C>,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (LineStatus<C>, Wakes) {
        // Its own waker goes first: a waiter that polls need not be woken.
        let old = self.waiting.get_mut(&ticket).and_then(|waiter| waiter.wake.take());
        let mut wakes = self.settle(source, now);
        wakes.discard(old);
        let answer = self.settled.remove(&ticket).or_else(|| self.expire(ticket, now));
        let status = match answer {
            Some(answer) => {
                wakes.discard(Some(wake));
                wakes.append(self.settle(source, now));
                LineStatus::Done(answer)
            }
            None => self.sleep(ticket, now, wake),
        };
        (status, wakes)
    }

    /// Ends the wait of `ticket` if its deadline has passed.
    fn expire(
        &mut self,
        ticket: Ticket,
        now: Moment,
    ) -> Option<Result<Held<C>, Refusal>> {
        // A reservation is made only if it is due before the deadline.
        let has_tokens = self.held.is_some() && self.is_first(ticket);
        let waiter = self.waiting.get(&ticket)?;
        if has_tokens || now < waiter.request.deadline() {
            return None;
        }
        let (request, expected) = (waiter.request, waiter.expected.max(now));
        drop(self.waiting.remove(&ticket)); // its waker has been taken out
        self.wanted -= u64::from(request.n);
        Some(Err(Refusal::TooLate(expected.since(request.at.given()))))
    }

    /// Stores the waker of a waiter, and returns when its timer fires (invariant 4).
    fn sleep(&mut self, ticket: Ticket, now: Moment, wake: Wake) -> LineStatus<C> {
        let is_first = self.is_first(ticket);
        let held = self.held.as_ref().map(|held| held.ready);
        let waiter = self.waiting.get_mut(&ticket).expect("invariant 3");
        let until = match held {
            _ if !is_first && waiter.expected > now => waiter.expected,
            // The line is slower than expected: sleep as long again.
            _ if !is_first => now.plus(now.since(waiter.request.at.given()).max(1)),
            Some(ready) => ready,
            None => Moment::END,
        };
        waiter.asleep_until = until.min(waiter.request.deadline().max(now.plus(1)));
        waiter.wake = Some(wake);
        LineStatus::Wait(ticket, waiter.asleep_until)
    }

    /// Removes a waiter. Unused tokens go back, and the next waiter moves up.
    pub(super) fn leave(
        &mut self,
        source: &mut impl TokenSource<Claim = C>,
        ticket: Ticket,
        now: Moment,
    ) -> Wakes {
        let (unused, wake) = self.remove(ticket);
        let mut wakes = match unused {
            Some(Held { claim, .. }) => {
                source.give_back(claim, now);
                self.tokens_came(source, now)
            }
            None => self.settle(source, now),
        };
        wakes.discard(wake);
        wakes
    }

    /// Removes a ticket. Returns the tokens it held, and its waker.
    fn remove(&mut self, ticket: Ticket) -> (Option<Held<C>>, Option<Wake>) {
        if let Some(answer) = self.settled.remove(&ticket) {
            return (answer.ok(), None);
        }
        let held = if self.is_first(ticket) { self.held.take() } else { None };
        let Some(waiter) = self.waiting.remove(&ticket) else { return (held, None) };
        if held.is_none() {
            self.wanted -= u64::from(waiter.request.n); // invariant 2
        }
        (held, waiter.wake)
    }

    /// Moves the line up after tokens came back.
    pub(super) fn tokens_came(
        &mut self,
        source: &mut impl TokenSource<Claim = C>,
        now: Moment,
    ) -> Wakes {
        if let (Some(held), Some((_, first))) =
            (&mut self.held, self.waiting.first_key_value())
        {
            source.renew(held, first.request, now);
        }
        self.settle(source, now)
    }

    /// Refuses waiters that want more than the new burst, and moves the others up.
    pub(super) fn rate_changed(
        &mut self,
        source: &mut impl TokenSource<Claim = C>,
        now: Moment,
    ) -> Wakes {
        let mut wakes = Wakes::default();
        let reserved = usize::from(self.held.is_some());
        let impossible: Vec<_> = self
            .waiting
            .iter()
            .skip(reserved)
            .filter_map(|(ticket, waiter)| match source.expect(waiter.request, 0) {
                Err(refusal @ Refusal::ExceedsBurst(_)) => Some((*ticket, refusal)),
                Ok(_) | Err(_) => None,
            })
            .collect();
        for (ticket, refusal) in impossible {
            self.wanted -= self.settle_one(ticket, Err(refusal), &mut wakes);
        }
        wakes.append(self.tokens_came(source, now));
        wakes
    }

    /// Grants tokens to all waiters whose time has come, and reserves for the next one.
    pub(super) fn settle(
        &mut self,
        source: &mut impl TokenSource<Claim = C>,
        now: Moment,
    ) -> Wakes {
        let mut wakes = Wakes::default();
        while let Some((&ticket, first)) = self.waiting.first_key_value() {
            let n = u64::from(first.request.n);
            let held = match self.held.take() {
                Some(held) => Ok(held),
                None => match source.reserve(first.request) {
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

    /// Stores the reservation of the first waiter. Wakes the waiter if its timer is too late.
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
        u64::from(waiter.request.n)
    }

    /// Returns the request of a waiter in line.
    pub(super) fn request(&self, ticket: Ticket) -> Request {
        self.waiting.get(&ticket).expect("invariant 3").request
    }

    /// Lets a waiter sleep until `until`, for a limiter that serves the line itself.
    pub(super) fn sleep_until(
        &mut self,
        ticket: Ticket,
        until: Moment,
        wake: Wake,
    ) -> (LineStatus<C>, Wakes) {
        let waiter = self.waiting.get_mut(&ticket).expect("invariant 3");
        waiter.asleep_until = until;
        let mut wakes = Wakes::default();
        wakes.discard(waiter.wake.replace(wake));
        (LineStatus::Wait(ticket, until), wakes)
    }

    /// Removes a waiter, and wakes the waiter that becomes first.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> Wakes {
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

    /// Returns when the tokens of the first waiter may be used, and when its timer fires.
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
        let wanted = self.waiting.values().skip(reserved).map(|w| u64::from(w.request.n));
        assert_eq!(wanted.sum::<u64>(), self.wanted, "invariant 2");
        let both = self.settled.keys().any(|ticket| self.waiting.contains_key(ticket));
        assert!(!both, "invariant 3");
    }
}

/// The outcome of admitting a request.
enum Admission<C> {
    Served(Held<C>),
    /// It joins the line, and is expected to be served at this time.
    Waits(Moment),
}

#[cfg(test)]
mod tests;
