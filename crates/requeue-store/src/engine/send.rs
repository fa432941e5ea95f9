//! Adding, and ending leases.

use std::sync::Arc;

use requeue::Clock;

use super::{Engine, Outage};
use crate::batch::{Answer, Answers, Batch, Turn};
use crate::held::Leaving;
use crate::meter::Meter;
use crate::{
    Add, Error, ErrorKind, FinishRequest, Finished, Hold, Receipt, Reply, Store,
};

/// What is brought to the store, several in one call: an add, or the end of a lease.
trait Errand: Send + Sync + Sized + 'static {
    /// What the store answers, and the caller is told.
    type Answer: Send + 'static;
    /// What goes when the caller is told.
    type Keep: Send + Sync + 'static;

    fn call<'a, S: Store>(
        store: &'a S,
        errands: &'a [Self],
    ) -> Reply<'a, Vec<Self::Answer>>;

    fn measure(meter: &Meter, errands: &[Self], answers: &[Self::Answer]);

    /// What the caller is told of an answer; nothing, if the store is to be asked again. It
    /// is `in_doubt` if an earlier attempt may have been carried out.
    fn judge(
        &self,
        answer: Self::Answer,
        in_doubt: bool,
    ) -> Option<Result<Self::Answer, Error>>;

    /// What the caller is told if that goes on for too long.
    fn busy(&self) -> Error;
}

type Errands<E> = Batch<E, <E as Errand>::Answer, <E as Errand>::Keep>;
type ErrandTurn<E> = Turn<E, <E as Errand>::Answer, <E as Errand>::Keep>;

/// An add that is repeated costs one more run at worst.
impl Errand for Add {
    type Answer = Receipt;
    type Keep = ();

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
        let text = format!("{:?} was not added: a transaction has it", self.key);
        Error::new(ErrorKind::Busy, text)
    }
}

impl Errand for FinishRequest {
    type Answer = Finished;
    type Keep = Leaving;

    fn call<'a, S: Store>(
        store: &'a S,
        requests: &'a [Self],
    ) -> Reply<'a, Vec<Finished>> {
        store.finish(requests)
    }

    fn measure(meter: &Meter, requests: &[Self], answers: &[Finished]) {
        meter.finished(requests, answers);
    }

    /// A lease that is found lost when its end is repeated may have been ended by the first
    /// attempt.
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
                    "the lease of {key:?} with token {token} had either been ended by a \
                     call whose answer was lost, or had run out"
                ),
            ))),
            Finished::LeaseLost => Some(Err(Error::new(
                ErrorKind::LeaseLost,
                format!("the lease of {key:?} with token {token} had run out"),
            ))),
            Finished::Done
            | Finished::Requeued
            | Finished::Delayed(_)
            | Finished::Buried => Some(Ok(finished)),
        }
    }

    fn busy(&self) -> Error {
        let Hold { key, token } = &self.hold;
        let text = format!(
            "the lease of {key:?} with token {token} was not ended: a transaction has the \
             key"
        );
        Error::new(ErrorKind::Busy, text)
    }
}

impl<S: Store> Engine<S> {
    pub(crate) fn add(self: &Arc<Self>, add: Add) -> Answer<Receipt> {
        let (answer, turn) = self.adds.push(add, (), self.terms.clock.now());
        self.start_sending(turn);
        answer
    }

    pub(crate) fn add_all(
        self: &Arc<Self>,
        adds: impl IntoIterator<Item = Add>,
    ) -> Answers<Receipt> {
        let adds = adds.into_iter().map(|add| (add, ()));
        let (answers, turn) = self.adds.push_all(adds, self.terms.clock.now());
        self.start_sending(turn);
        answers
    }

    pub(crate) fn finish(
        self: &Arc<Self>,
        request: FinishRequest,
        leaving: Leaving,
    ) -> Answer<Finished> {
        let (answer, turn) = self.ends.push(request, leaving, self.terms.clock.now());
        self.start_sending(turn);
        answer
    }

    fn start_sending<E: Errand>(self: &Arc<Self>, turn: Option<ErrandTurn<E>>) {
        if let Some(turn) = turn {
            self.spawn(Arc::clone(self).send(turn));
        }
    }

    async fn send<E: Errand>(self: Arc<Self>, mut turn: ErrandTurn<E>) {
        let mut outage = Outage::default();
        while let Some(batch) = turn.take() {
            if let Some(busy) = self.bring(batch, &mut outage, Some(&turn)).await {
                self.send_aside(busy);
            }
        }
    }

    /// Sends what somebody has a key of without holding up others: in halves, until the key
    /// is alone.
    fn send_aside<E: Errand>(self: &Arc<Self>, busy: Errands<E>) {
        let (first, second) = busy.halves();
        for half in [first, second] {
            if !half.is_empty() {
                self.spawn(Arc::clone(self).bring_aside(half));
            }
        }
    }

    async fn bring_aside<E: Errand>(self: Arc<Self>, mut batch: Errands<E>) {
        let mut outage = Outage::default();
        loop {
            // An error would say that it is closed, which it never is.
            let place = self.aside.acquire().await;
            let busy = self.bring(batch, &mut outage, None).await;
            drop(place);
            let Some(mut busy) = busy else { return };
            let [alone] = busy.items() else { return self.send_aside(busy) };
            let error = alone.busy();
            if !self.pause_before_next(&mut busy, &mut outage, None, &error).await {
                return;
            }
            batch = busy;
        }
    }

    /// Brings a batch to the store, until it has answered, fails for good, or has failed for
    /// long enough. Gives back those of which somebody has the key, or one of the keys.
    async fn bring<E: Errand>(
        &self,
        mut batch: Errands<E>,
        outage: &mut Outage,
        turn: Option<&ErrandTurn<E>>,
    ) -> Option<Errands<E>> {
        loop {
            let error = match E::call(&self.store, batch.items()).await {
                Ok(answers) => {
                    self.measure(|meter| E::measure(meter, batch.items(), &answers));
                    let in_doubt = batch.in_doubt;
                    let busy = batch.answer(answers, |it, told| it.judge(told, in_doubt));
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
            if !self.pause_before_next(&mut batch, outage, turn, &error).await {
                return None;
            }
        }
    }

    /// Pauses before the next attempt, and tells those of the error whose patience is over
    /// by then: whether anybody is left.
    async fn pause_before_next<E: Errand>(
        &self,
        batch: &mut Errands<E>,
        outage: &mut Outage,
        turn: Option<&ErrandTurn<E>>,
        error: &Error,
    ) -> bool {
        let now = self.terms.clock.now();
        let pause = outage.next_pause(now);
        let next = now.checked_add(pause);
        let is_over = |asked| outage.outlasts(self.terms.patience, asked, next);
        batch.give_up(is_over, error);
        if let Some(turn) = turn {
            turn.give_up(is_over, error);
        }
        if batch.is_empty() {
            return false;
        }
        // That somebody has a key says nothing of the store.
        if error.kind() != ErrorKind::Busy {
            self.report(error);
        }
        self.pause(pause).await;
        true
    }
}
