//! Adding, and ending leases.

use std::sync::Arc;

use super::Engine;
use crate::batch::Answer;
use crate::{Add, End, Ending, Error, ErrorKind, Finished, Hold, Receipt, Store};

impl<S: Store> Engine<S> {
    pub(crate) fn add(self: &Arc<Self>, add: Add) -> Answer<Receipt> {
        let (answer, start) = self.adds.push(add);
        if start {
            self.spawn(Arc::clone(self).send_adds());
        }
        answer
    }

    pub(crate) fn add_all(
        self: &Arc<Self>,
        adds: impl IntoIterator<Item = Add>,
    ) -> Vec<Answer<Receipt>> {
        let (answers, start) = self.adds.push_all(adds);
        if start {
            self.spawn(Arc::clone(self).send_adds());
        }
        answers
    }

    /// An add that is repeated costs one more run at worst.
    async fn send_adds(self: Arc<Self>) {
        while let Some(batch) = self.adds.take() {
            let (answers, _) = self.patiently(|| self.store.add(&batch.items)).await;
            if let Ok(receipts) = &answers {
                self.measure(|meter| meter.added(&batch.items, receipts));
            }
            let answers = answers.map(|receipts| receipts.into_iter().map(Ok).collect());
            batch.answer(answers);
        }
        self.held.ended.notify_waiters();
    }

    pub(crate) fn end(self: &Arc<Self>, hold: Hold, ending: Ending) -> Answer<Finished> {
        let (answer, start) = self.ends.push(End { hold, ending });
        if start {
            self.spawn(Arc::clone(self).send_ends());
        }
        answer
    }

    async fn send_ends(self: Arc<Self>) {
        while let Some(batch) = self.ends.take() {
            let (answers, in_doubt) =
                self.patiently(|| self.store.finish(&batch.items)).await;
            // Extended until here: an end that takes long must not come too late.
            for end in &batch.items {
                self.held.remove(&end.hold);
            }
            if let Ok(all) = &answers {
                self.measure(|meter| meter.finished(&batch.items, all));
            }
            let judge =
                |(end, finished): (&End, Finished)| judge(end, finished, in_doubt);
            let answers =
                answers.map(|all| batch.items.iter().zip(all).map(judge).collect());
            batch.answer(answers);
        }
        self.held.ended.notify_waiters();
    }
}

/// A lease that is found lost when its end is repeated may have been ended by the first
/// attempt.
fn judge(end: &End, finished: Finished, in_doubt: bool) -> Result<Finished, Error> {
    let Hold { key, token } = &end.hold;
    match finished {
        Finished::LeaseLost if in_doubt => Err(Error::new(
            ErrorKind::Unknown,
            format!(
                "the lease of {key:?} with token {token} had either been ended by a call \
                 whose answer was lost, or had run out"
            ),
        )),
        Finished::LeaseLost => Err(Error::new(
            ErrorKind::LeaseLost,
            format!("the lease of {key:?} with token {token} had run out"),
        )),
        Finished::Busy => Err(Error::new(
            ErrorKind::Busy,
            format!("the key {key:?} is locked by a transaction that does not end"),
        )),
        Finished::Done | Finished::Requeued | Finished::Delayed(_) | Finished::Buried => {
            Ok(finished)
        }
    }
}
