//! Sending adds and finishes.

use std::sync::Arc;

use requeue::Clock;

use super::Client;
use super::batch::{Answer, Batch, RepeatGuard, SendGuard};
use super::held_leases::FinishGuard;
use super::lanes::by_lane;
use super::meter::Meter;
use crate::race::race;
use crate::{
    Add, Error, ErrorKind, FinishRequest, Finished, Hold, Receipt, Replies, Store,
};

/// A request that is sent in batches: an add or a finish.
trait Request: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;
    /// Dropped before the caller gets its answer.
    type Guard: Send + Sync + 'static;

    fn call<'a, S: Store>(
        store: &'a S,
        requests: &'a [Self],
    ) -> Replies<'a, Self::Answer>;

    fn measure(&self, meter: &Meter, answer: &Self::Answer);

    /// Returns what the caller gets. The request is `in_doubt` if an earlier attempt may
    /// have been executed.
    fn judge(&self, answer: Self::Answer, in_doubt: bool) -> Result<Self::Answer, Error>;

    /// Returns the error of a key that stays locked for too long.
    fn busy(&self) -> Error;

    /// Names the key in the error of a locked key.
    fn explain(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Busy { self.busy().because(error) } else { error }
    }
}

type RequestBatch<R> = Batch<R, <R as Request>::Answer, <R as Request>::Guard>;
type RequestGuard<R> = SendGuard<R, <R as Request>::Answer, <R as Request>::Guard>;
type RequestRepeat<R> = RepeatGuard<R, <R as Request>::Answer, <R as Request>::Guard>;

/// A repeated add costs at worst one more run.
impl Request for Add {
    type Answer = Receipt;
    type Guard = ();

    fn call<'a, S: Store>(store: &'a S, adds: &'a [Self]) -> Replies<'a, Receipt> {
        store.add(adds)
    }

    fn measure(&self, meter: &Meter, receipt: &Receipt) {
        meter.added(self, receipt);
    }

    fn judge(&self, receipt: Receipt, _: bool) -> Result<Receipt, Error> {
        Ok(receipt)
    }

    fn busy(&self) -> Error {
        let text = format!("{:?} was not added: a transaction locks it", self.key);
        Error::new(ErrorKind::Busy, text)
    }
}

impl Request for FinishRequest {
    type Answer = Finished;
    type Guard = FinishGuard;

    fn call<'a, S: Store>(store: &'a S, requests: &'a [Self]) -> Replies<'a, Finished> {
        store.finish(requests)
    }

    fn measure(&self, meter: &Meter, answer: &Finished) {
        meter.finished(self, answer);
    }

    /// If a repeated finish finds the lease lost, the first attempt may have ended it.
    fn judge(&self, finished: Finished, in_doubt: bool) -> Result<Finished, Error> {
        let Hold { key, token } = &self.hold;
        match finished {
            Finished::LeaseLost if in_doubt => Err(Error::new(
                ErrorKind::Unknown,
                format!(
                    "the lease on {key:?} with token {token} either expired, or was ended \
                     by a call whose answer was lost"
                ),
            )),
            Finished::LeaseLost => Err(Error::new(
                ErrorKind::LeaseLost,
                format!("the lease on {key:?} with token {token} has expired"),
            )),
            Finished::Done
            | Finished::Requeued
            | Finished::Delayed(_)
            | Finished::Dead => Ok(finished),
        }
    }

    fn busy(&self) -> Error {
        let Hold { key, token } = &self.hold;
        let text = format!(
            "the lease on {key:?} with token {token} was not ended: a transaction locks the \
             key"
        );
        Error::new(ErrorKind::Busy, text)
    }
}

/// The result of one call.
struct Sent<R: Request> {
    /// The requests to repeat.
    rest: Option<RequestBatch<R>>,
    /// An error if no request was answered because of the store, not because of a key.
    outage: Option<Error>,
}

impl<S: Store> Client<S> {
    pub(crate) fn add(self: &Arc<Self>, add: Add) -> Answer<Receipt> {
        let batcher = self.adds.lane(self.store.lane(&add.key));
        let (answer, guard) = batcher.push(add, (), self.settings.clock.now());
        self.start_sending(guard);
        answer
    }

    /// Adds keys. Returns the answers in the same order.
    pub(crate) fn add_all(
        self: &Arc<Self>,
        adds: impl IntoIterator<Item = Add>,
    ) -> Vec<Answer<Receipt>> {
        let now = self.settings.clock.now();
        let mut all = Vec::new();
        let adds = adds.into_iter().enumerate();
        for (lane, adds) in by_lane(adds, |(_, add)| self.store.lane(&add.key)) {
            let (places, adds): (Vec<_>, Vec<_>) = adds.into_iter().unzip();
            let adds = adds.into_iter().map(|add| (add, ()));
            let (answers, guard) = self.adds.lane(lane).push_all(adds, now);
            self.start_sending(guard);
            all.extend(places.into_iter().zip(answers));
        }
        all.sort_unstable_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, answer)| answer).collect()
    }

    pub(crate) fn finish(
        self: &Arc<Self>,
        request: FinishRequest,
        finish_guard: FinishGuard,
    ) -> Answer<Finished> {
        let now = self.settings.clock.now();
        let batcher = self.finishes.lane(self.store.lane(&request.hold.key));
        let (answer, guard) = batcher.push(request, finish_guard, now);
        self.start_sending(guard);
        answer
    }

    fn start_sending<R: Request>(self: &Arc<Self>, guard: Option<RequestGuard<R>>) {
        if let Some(guard) = guard {
            self.spawn(Arc::clone(self).send(guard));
        }
    }

    async fn send<R: Request>(self: Arc<Self>, mut guard: RequestGuard<R>) {
        while let Some(batch) = guard.take() {
            let sent = self.send_batch(batch).await;
            if let Some(repeat) = sent.rest.and_then(Batch::repeat_later) {
                self.spawn(Arc::clone(&self).repeat(repeat));
            }
        }
    }

    /// Repeats failed requests. New ones do not wait for them.
    async fn repeat<R: Request>(self: Arc<Self>, mut guard: RequestRepeat<R>) {
        let clock = &self.settings.clock;
        while let Some(next) = guard.next() {
            let now = clock.now();
            if next > now {
                race(guard.joined(), Some(clock.timer(next))).await;
                continue;
            }
            let Some(batch) = guard.take_due(now) else { continue };
            let sent = self.send_batch(batch).await;
            if let Some(error) = sent.outage {
                guard.postpone_due(&error, clock.now(), self.settings.patience);
            }
            // This task is the one that repeats them.
            let other = sent.rest.and_then(Batch::repeat_later);
            debug_assert!(other.is_none(), "`guard` exists");
        }
    }

    /// Sends a batch once.
    async fn send_batch<R: Request>(&self, batch: RequestBatch<R>) -> Sent<R> {
        let answers = R::call(&self.store, batch.items()).await;
        for (request, answer) in batch.items().iter().zip(&answers) {
            if let Ok(answer) = answer {
                self.measure(|meter| request.measure(meter, answer));
            }
        }
        // A locked key is not a problem of the store.
        let errors = || answers.iter().filter_map(|answer| answer.as_ref().err());
        let of_store = |error: &&Error| error.kind() != ErrorKind::Busy;
        let outage =
            errors().find(of_store).filter(|_| errors().count() == answers.len());
        let outage = outage.filter(|error| error.is_transient()).cloned();
        if let Some(error) = errors().find(of_store).filter(|it| it.is_transient()) {
            self.report(error);
        }
        let (now, patience) = (self.settings.clock.now(), self.settings.patience);
        let rest = batch.answer(answers, R::judge, R::explain, now, patience);
        Sent { rest, outage }
    }
}
