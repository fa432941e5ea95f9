//! A thread or a task that waits in line.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Held, LineStatus, Ticket};
use crate::clock::{AnyClock, Timer};
use crate::rate::bucket::{Refusal, Request};
use crate::rate::error::WaitError;
use crate::rate::moment::{Moment, Timeline};
use crate::sync::thread;
use crate::wake::{Wake, Wakes};

/// A limiter that has a line.
///
/// `join`, `poll` and `leave` lock the line and return what to wake after it is unlocked.
pub(in crate::rate) trait LineOwner {
    type Claim;

    fn clock(&self) -> &AnyClock;

    fn timeline(&self) -> Timeline;

    fn join(&self, request: Request, wake: Wake) -> (LineStatus<Self::Claim>, Wakes);

    fn poll(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (LineStatus<Self::Claim>, Wakes);

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes;
}

/// Forwards through references and `Arc`s.
impl<P> LineOwner for P
where
    P: Deref<Target: LineOwner>,
{
    type Claim = <P::Target as LineOwner>::Claim;

    fn clock(&self) -> &AnyClock {
        (**self).clock()
    }

    fn timeline(&self) -> Timeline {
        (**self).timeline()
    }

    fn join(&self, request: Request, wake: Wake) -> (LineStatus<Self::Claim>, Wakes) {
        (**self).join(request, wake)
    }

    fn poll(
        &self,
        ticket: Ticket,
        now: Moment,
        wake: Wake,
    ) -> (LineStatus<Self::Claim>, Wakes) {
        (**self).poll(ticket, now, wake)
    }

    fn leave(&self, ticket: Ticket, now: Moment) -> Wakes {
        (**self).leave(ticket, now)
    }
}

/// A wait for the tokens of a request, as a future or blocking.
///
/// It joins the line when it is first polled. Dropping it leaves the line.
pub(in crate::rate) struct WaitInLine<O: LineOwner> {
    owner: O,
    request: Request,
    /// `None` while it is not in line.
    ticket: Option<Ticket>,
    timer: Option<(Moment, Timer)>,
}

impl<O: LineOwner> WaitInLine<O> {
    pub(in crate::rate) fn new(owner: O, request: Request) -> Self {
        Self { owner, request, ticket: None, timer: None }
    }

    /// Blocks this thread until the wait ends.
    pub(in crate::rate) fn block(mut self) -> Result<Held<O::Claim>, Refusal> {
        let mut now = self.request.at.given();
        loop {
            match self.step(now, Wake::Thread(thread::current())) {
                LineStatus::Done(answer) => return answer,
                LineStatus::Wait(_, until) => {
                    let until = self.owner.timeline().instant(until);
                    self.owner.clock().park_until(until);
                }
            }
            now = self.now();
        }
    }

    /// Waits for the tokens. Returns a refusal as an error.
    pub(in crate::rate) async fn tokens(self) -> Result<(), WaitError>
    where
        O: Unpin,
    {
        let request = self.request;
        self.await.map(drop).map_err(|refusal| WaitError::new(refusal, request))
    }

    /// Blocks this thread until the tokens may be used. Returns a refusal as an error.
    pub(in crate::rate) fn tokens_blocking(self) -> Result<(), WaitError> {
        let request = self.request;
        self.block().map(drop).map_err(|refusal| WaitError::new(refusal, request))
    }

    /// Polls the line, or joins it at the first call.
    fn step(&mut self, now: Moment, wake: Wake) -> LineStatus<O::Claim> {
        let (status, wakes) = match self.ticket {
            None => self.owner.join(self.request, wake),
            Some(ticket) => self.owner.poll(ticket, now, wake),
        };
        self.ticket = match &status {
            LineStatus::Done(_) => None,
            LineStatus::Wait(ticket, _) => Some(*ticket),
        };
        wakes.wake();
        status
    }

    fn poll_timer(&mut self, until: Moment, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.as_ref().is_none_or(|(armed, _)| *armed != until) {
            let deadline = self.owner.timeline().instant(until);
            self.timer = Some((until, self.owner.clock().timer(deadline)));
        }
        if let Some((_, timer)) = &mut self.timer {
            ready!(Pin::new(timer).poll(cx));
        }
        self.timer = None;
        Poll::Ready(())
    }

    fn now(&self) -> Moment {
        self.owner.timeline().moment(self.owner.clock().now())
    }
}

impl<O: LineOwner + Unpin> Future for WaitInLine<O> {
    type Output = Result<Held<O::Claim>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let joins = self.ticket.is_none();
        let mut now = if joins { self.request.at.given() } else { self.now() };
        loop {
            match self.step(now, Wake::Task(cx.waker().clone())) {
                LineStatus::Done(answer) => return Poll::Ready(answer),
                LineStatus::Wait(_, until) => ready!(self.poll_timer(until, cx)),
            }
            now = self.now();
        }
    }
}

impl<O: LineOwner> Drop for WaitInLine<O> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.owner.leave(ticket, self.now()).wake();
        }
    }
}
