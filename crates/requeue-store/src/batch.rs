//! Calls that go together: while one is on its way, those that come form the next.
//!
//! There is no timer in it. A call that comes alone goes alone and at once; under load each
//! call carries all that came since the one before, and a round trip is shared by many.
//!
//! # Invariants
//!
//! 1. `sending` is true exactly while a task takes batches. Whoever finds it
//!    false sets it and starts one, so nothing waits without a task that will send it.
//! 2. Everything that was pushed is sent, even if nobody waits for the answer any more.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::oneshot;

use crate::sync::lock;
use crate::{Error, ErrorKind};

/// The most that one call carries: a script of Redis stays below a few milliseconds.
const MAX_BATCH: usize = 256;

/// Where the answer for one will be.
pub(crate) type Answer<O> = oneshot::Receiver<Result<O, Error>>;

/// Things that are to be sent, and who waits for the answers.
#[derive(Debug)]
pub(crate) struct Batcher<I, O> {
    line: Mutex<Line<I, O>>,
}

#[derive(Debug)]
struct Line<I, O> {
    waiting: VecDeque<(I, oneshot::Sender<Result<O, Error>>)>,
    sending: bool,
}

impl<I, O> Batcher<I, O> {
    pub(crate) fn new() -> Self {
        Self { line: Mutex::new(Line { waiting: VecDeque::new(), sending: false }) }
    }

    /// Puts something in line: where its answer will be, and whether the caller is to
    /// start a task that takes batches until there is none.
    pub(crate) fn push(&self, item: I) -> (Answer<O>, bool) {
        let (sender, answer) = oneshot::channel();
        let mut line = lock(&self.line);
        line.waiting.push_back((item, sender));
        let start = !std::mem::replace(&mut line.sending, true);
        (answer, start)
    }

    /// As [`push`](Self::push) for several at once.
    pub(crate) fn push_all(
        &self,
        items: impl IntoIterator<Item = I>,
    ) -> (Vec<Answer<O>>, bool) {
        let mut line = lock(&self.line);
        let mut put = |item| {
            let (sender, answer) = oneshot::channel();
            line.waiting.push_back((item, sender));
            answer
        };
        let answers: Vec<_> = items.into_iter().map(&mut put).collect();
        let start = !answers.is_empty() && !std::mem::replace(&mut line.sending, true);
        (answers, start)
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        !lock(&self.line).sending
    }

    /// The next batch to send; without one, the task that asks must end: invariant 1.
    pub(crate) fn take(&self) -> Option<Batch<I, O>> {
        let mut line = lock(&self.line);
        let size = line.waiting.len().min(MAX_BATCH);
        line.sending = size > 0;
        (size > 0).then(|| {
            let (items, senders) = line.waiting.drain(..size).unzip();
            Batch { items, senders }
        })
    }
}

/// What goes in one call.
#[derive(Debug)]
#[must_use = "somebody waits for the answers"]
pub(crate) struct Batch<I, O> {
    pub(crate) items: Vec<I>,
    senders: Vec<oneshot::Sender<Result<O, Error>>>,
}

impl<I, O> Batch<I, O> {
    /// Tells everybody. Those who have gone are not missed.
    pub(crate) fn answer(self, answers: Result<Vec<Result<O, Error>>, Error>) {
        match answers.and_then(|answers| self.check(answers)) {
            Ok(answers) => {
                for (sender, answer) in self.senders.into_iter().zip(answers) {
                    drop(sender.send(answer));
                }
            }
            Err(error) => {
                for sender in self.senders {
                    drop(sender.send(Err(error.duplicate())));
                }
            }
        }
    }

    fn check<T>(&self, answers: Vec<T>) -> Result<Vec<T>, Error> {
        let (asked, given) = (self.items.len(), answers.len());
        if asked == given {
            return Ok(answers);
        }
        let text = format!("the store gave {given} answers to {asked} questions");
        Err(Error::new(ErrorKind::Corrupt, text))
    }
}

/// Waits for an answer.
pub(crate) async fn answered<O>(answer: Answer<O>) -> Result<O, Error> {
    answer.await.unwrap_or_else(|_| {
        let text = "the runtime of the queue was shut down before the answer came";
        Err(Error::new(ErrorKind::Unknown, text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_comes_while_one_call_is_on_its_way_goes_together() {
        let batcher = Batcher::<u32, u32>::new();
        let (first, start) = batcher.push(1);
        assert!(start, "somebody has to send it");
        let alone = batcher.take().unwrap();
        let later: Vec<_> = (2..=300).map(|item| batcher.push(item)).collect();
        assert!(later.iter().all(|(_, start)| !start), "a task is sending already");
        assert_eq!(alone.items, [1]);
        alone.answer(Ok(vec![Ok(10)]));
        let sizes: Vec<_> = std::iter::from_fn(|| {
            let batch = batcher.take()?;
            let answers = batch.items.iter().map(|item| Ok(item * 10)).collect();
            let size = batch.items.len();
            batch.answer(Ok(answers));
            Some(size)
        })
        .collect();
        assert_eq!(sizes, [256, 43]);
        assert_eq!(answered(first).await.unwrap(), 10);
        for (item, (answer, _)) in (2..).zip(later) {
            assert_eq!(answered(answer).await.unwrap(), item * 10);
        }
        assert!(batcher.is_idle());
    }

    #[tokio::test]
    async fn an_error_reaches_each_who_waited_for_the_call() {
        let batcher = Batcher::<u32, u32>::new();
        let (answers, start) = batcher.push_all([1, 2]);
        assert!(start);
        let batch = batcher.take().unwrap();
        batch.answer(Err(Error::new(ErrorKind::Unavailable, "no store")));
        for answer in answers {
            let error = answered(answer).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
    }

    #[tokio::test]
    async fn a_store_that_forgets_an_answer_is_found_out() {
        let batcher = Batcher::<u32, u32>::new();
        let (answer, _) = batcher.push(1);
        batcher.take().unwrap().answer(Ok(Vec::new()));
        assert_eq!(answered(answer).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
