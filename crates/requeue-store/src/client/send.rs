//! Sending adds and finishes.

use std::sync::Arc;

use requeue::Clock;

use super::Client;
use super::batch::{Answer, Batch, SendGuard};
use super::held_leases::FinishGuard;
use super::meter::Meter;
use super::outage::Outage;
use crate::{
    Add, Error, ErrorKind, FinishRequest, Finished, Hold, Receipt, Reply, Store,
};

/// A request that is sent in batches: an add or a finish.
trait Request: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;
    /// Dropped before the caller gets its answer.
    type Guard: Send + Sync + 'static;

    fn call<'a, S: Store>(
        store: &'a S,
        requests: &'a [Self],
    ) -> Reply<'a, Vec<Self::Answer>>;

    fn measure(meter: &Meter, requests: &[Self], answers: &[Self::Answer]);

    /// Returns what the caller gets, or `None` if the request must be sent again. It is
    /// `in_doubt` if an earlier attempt may have been executed.
    fn judge(
        &self,
        answer: Self::Answer,
        in_doubt: bool,
    ) -> Option<Result<Self::Answer, Error>>;

    /// Returns the error of a key that stays locked for too long.
    fn busy(&self) -> Error;
}

type RequestBatch<R> = Batch<R, <R as Request>::Answer, <R as Request>::Guard>;
type RequestGuard<R> = SendGuard<R, <R as Request>::Answer, <R as Request>::Guard>;

/// A repeated add costs at worst one more run.
impl Request for Add {
    type Answer = Receipt;
    type Guard = ();

    fn call<'a, S: Store>(store: &'a S, adds: &'a [Self]) -> Reply<'a, Vec<Receipt>> {
        store.add(adds)
    }

    fn measure(meter: &Meter, adds: &[Self], receipts: &[Receipt]) {
        meter.added(adds, receipts);
    }

    fn judge(&self, receipt: Receipt, _: bool) -> Option<Result<Receipt, Error>> {
        Some(Ok(receipt))
    }

    fn busy(&self) -> Error {
        let text = format!("{:?} was not added: a transaction locks it", self.key);
        Error::new(ErrorKind::Busy, text)
    }
}

impl Request for FinishRequest {
    type Answer = Finished;
    type Guard = FinishGuard;

    fn call<'a, S: Store>(
        store: &'a S,
        requests: &'a [Self],
    ) -> Reply<'a, Vec<Finished>> {
        store.finish(requests)
    }

    fn measure(meter: &Meter, requests: &[Self], answers: &[Finished]) {
        meter.finished(requests, answers);
    }

    /// If a repeated finish finds the lease lost, the first attempt may have ended it.
    fn judge(
        &self,
        finished: Finished,
        in_doubt: bool,
    ) -> Option<Result<Finished, Error>> {
        let Hold { key, token } = &self.hold;
        match finished {
            Finished::Busy => None,
            Finished::LeaseLost if in_doubt => Some(Err(Error::new(
                ErrorKind::Unknown,
                format!(
                    "the lease on {key:?} with token {token} either expired, or was ended \
                     by a call whose answer was lost"
                ),
            ))),
            Finished::LeaseLost => Some(Err(Error::new(
                ErrorKind::LeaseLost,
                format!("the lease on {key:?} with token {token} has expired"),
            ))),
            Finished::Done
            | Finished::Requeued
            | Finished::Delayed(_)
            | Finished::Dead => Some(Ok(finished)),
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

impl<S: Store> Client<S> {
    pub(crate) fn add(self: &Arc<Self>, add: Add) -> Answer<Receipt> {
        let (answer, guard) = self.adds.push(add, (), self.settings.clock.now());
        self.start_sending(guard);
        answer
    }

    pub(crate) fn add_all(
        self: &Arc<Self>,
        adds: impl IntoIterator<Item = Add>,
    ) -> Vec<Answer<Receipt>> {
        let adds = adds.into_iter().map(|add| (add, ()));
        let (answers, guard) = self.adds.push_all(adds, self.settings.clock.now());
        self.start_sending(guard);
        answers
    }

    pub(crate) fn finish(
        self: &Arc<Self>,
        request: FinishRequest,
        finish_guard: FinishGuard,
    ) -> Answer<Finished> {
        let now = self.settings.clock.now();
        let (answer, guard) = self.finishes.push(request, finish_guard, now);
        self.start_sending(guard);
        answer
    }

    fn start_sending<R: Request>(self: &Arc<Self>, guard: Option<RequestGuard<R>>) {
        if let Some(guard) = guard {
            self.spawn(Arc::clone(self).send(guard));
        }
    }

    async fn send<R: Request>(self: Arc<Self>, mut guard: RequestGuard<R>) {
        let mut outage = Outage::default();
        while let Some(batch) = guard.take() {
            if let Some(busy) = self.send_batch(batch, &mut outage, Some(&guard)).await {
                self.send_halves(busy);
            }
        }
    }

    /// Sends a batch with a locked key without delaying others: in halves, until the locked
    /// key is alone.
    fn send_halves<R: Request>(self: &Arc<Self>, busy: RequestBatch<R>) {
        let (first, second) = busy.halves();
        for half in [first, second] {
            if !half.is_empty() {
                self.spawn(Arc::clone(self).send_busy(half));
            }
        }
    }

    async fn send_busy<R: Request>(self: Arc<Self>, mut batch: RequestBatch<R>) {
        let mut outage = Outage::default();
        loop {
            // The semaphore is never closed, so this is never an error.
            let permit = self.busy_calls.acquire().await;
            let busy = self.send_batch(batch, &mut outage, None).await;
            drop(permit);
            let Some(mut busy) = busy else { return };
            let [alone] = busy.items() else { return self.send_halves(busy) };
            let error = alone.busy();
            if !self.pause_before_next(&mut busy, &mut outage, None, &error).await {
                return;
            }
            batch = busy;
        }
    }

    /// Sends a batch until the store answers, fails for good, or patience ends. Returns the
    /// requests that must be sent again because a key is locked.
    async fn send_batch<R: Request>(
        &self,
        mut batch: RequestBatch<R>,
        outage: &mut Outage,
        guard: Option<&RequestGuard<R>>,
    ) -> Option<RequestBatch<R>> {
        loop {
            let error = match R::call(&self.store, batch.items()).await {
                Ok(answers) => {
                    self.measure(|meter| R::measure(meter, batch.items(), &answers));
                    let in_doubt = batch.in_doubt;
                    let busy = batch.answer(answers, |request, answer| {
                        request.judge(answer, in_doubt)
                    });
                    if busy.is_none() {
                        *outage = Outage::default();
                    }
                    return busy;
                }
                Err(error) if error.kind() == ErrorKind::Busy => return Some(batch),
                Err(error) if !error.is_transient() => {
                    batch.fail(&error);
                    return None;
                }
                Err(error) => error,
            };
            batch.in_doubt |= error.kind() == ErrorKind::Unknown;
            if !self.pause_before_next(&mut batch, outage, guard, &error).await {
                return None;
            }
        }
    }

    /// Fails the callers whose patience ends before the next attempt, and pauses. Returns
    /// whether any request is left.
    async fn pause_before_next<R: Request>(
        &self,
        batch: &mut RequestBatch<R>,
        outage: &mut Outage,
        guard: Option<&RequestGuard<R>>,
        error: &Error,
    ) -> bool {
        let now = self.settings.clock.now();
        let pause = outage.next_pause(now);
        let next = now.checked_add(pause);
        let is_over = |asked| outage.exceeds(self.settings.patience, asked, next);
        batch.fail_impatient(is_over, error);
        if let Some(guard) = guard {
            guard.fail_impatient(is_over, error);
        }
        if batch.is_empty() {
            return false;
        }
        // A locked key is not a problem of the store.
        if error.kind() != ErrorKind::Busy {
            self.report(error);
        }
        self.pause(pause).await;
        true
    }
}
