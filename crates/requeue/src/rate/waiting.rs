//! A wait in the line of a limiter, by a thread or a task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::bucket::{Ask, Refusal};
use super::line::{Held, Look, Ticket};
use super::moment::{Moment, Timeline};
use crate::clock::{AnyClock, Timer};
use crate::sync::thread;
use crate::wake::{Wake, Wakes};

/// A limiter whose waiters line up.
///
/// `join`, `look` and `leave` lock the line, and return the wake-ups that are due when it
/// is unlocked.
pub(super) trait Host {
    type Claim;

    fn clock(&self) -> &AnyClock;

    fn timeline(&self) -> Timeline;

    fn join(&self, ask: Ask, wake: Wake) -> (Look<Self::Claim>, Wakes);

    fn look(&self, ticket: Ticket, now: Moment, wake: Wake)
    -> (Look<Self::Claim>, Wakes);

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes;
}

impl<H: Host> Host for &H {
    type Claim = H::Claim;

    fn clock(&self) -> &AnyClock {
        (**self).clock()
    }

    fn timeline(&self) -> Timeline {
        (**self).timeline()
    }

    fn join(&self, ask: Ask, wake: Wake) -> (Look<H::Claim>, Wakes) {
        (**self).join(ask, wake)
    }

    fn look(&self, ticket: Ticket, now: Moment, wake: Wake) -> (Look<H::Claim>, Wakes) {
        (**self).look(ticket, now, wake)
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        (**self).leave(ticket, now)
    }
}

/// A wait for what `ask` asks for: a future, or a loop that blocks its thread.
///
/// It joins the line when it is first polled. Dropping it leaves the line.
pub(super) struct Waiting<H: Host> {
    host: H,
    ask: Ask,
    /// `None` while it is not in the line.
    ticket: Option<Ticket>,
    timer: Option<(Moment, Timer)>,
}

impl<H: Host> Waiting<H> {
    pub(super) fn new(host: H, ask: Ask) -> Self {
        Self { host, ask, ticket: None, timer: None }
    }

    /// Blocks this thread until the wait has ended.
    pub(super) fn block(mut self) -> Result<Held<H::Claim>, Refusal> {
        let mut now = self.ask.at.given();
        loop {
            match self.step(now, Wake::Thread(thread::current())) {
                Look::Done(answer) => return answer,
                Look::Wait(_, until) => {
                    let until = self.host.timeline().instant(until);
                    self.host.clock().park_until(until);
                }
            }
            now = self.now();
        }
    }

    /// Looks at the line, which it joins at the first call.
    fn step(&mut self, now: Moment, wake: Wake) -> Look<H::Claim> {
        let (look, wakes) = match self.ticket {
            None => self.host.join(self.ask, wake),
            Some(ticket) => self.host.look(ticket, now, wake),
        };
        self.ticket = match &look {
            Look::Done(_) => None,
            Look::Wait(ticket, _) => Some(*ticket),
        };
        wakes.wake();
        look
    }

    fn poll_timer(&mut self, until: Moment, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.as_ref().is_none_or(|(armed, _)| *armed != until) {
            let deadline = self.host.timeline().instant(until);
            self.timer = Some((until, self.host.clock().timer(deadline)));
        }
        if let Some((_, timer)) = &mut self.timer {
            ready!(Pin::new(timer).poll(cx));
        }
        self.timer = None;
        Poll::Ready(())
    }

    fn now(&self) -> Moment {
        self.host.timeline().moment(self.host.clock().now())
    }
}

impl<H: Host + Unpin> Future for Waiting<H> {
    type Output = Result<Held<H::Claim>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let joins = self.ticket.is_none();
        let mut now = if joins { self.ask.at.given() } else { self.now() };
        loop {
            match self.step(now, Wake::Task(cx.waker().clone())) {
                Look::Done(answer) => return Poll::Ready(answer),
                Look::Wait(_, until) => ready!(self.poll_timer(until, cx)),
            }
            now = self.now();
        }
    }
}

impl<H: Host> Drop for Waiting<H> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.host.leave(ticket, self.now()).wake();
        }
    }
}
