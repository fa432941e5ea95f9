//! A store layer that records every call and its answer.

use std::sync::Arc;
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_store::{
    Add, Backoff, Dead, Error, ErrorKind, FinishRequest, Finished, Hold, LeaseRequest,
    Leased, Owner, Receipt, Replies, Reply, Store, When, Which, forward_store, micros_of,
};

use crate::history::event::{self, Answer, Request};
use crate::history::journal::Journal;

/// The outermost layer. It records exactly the calls that the queue above it makes,
/// including each retry.
#[derive(Clone)]
pub(crate) struct Recorder {
    store: Arc<dyn Store>,
    journal: Arc<Journal>,
}

impl Recorder {
    pub(crate) fn new(store: Arc<dyn Store>, journal: Arc<Journal>) -> Self {
        Self { store, journal }
    }

    /// Records the request, makes the call, and records the answer. The request comes first
    /// because some stores act as soon as the call is made, not when it is polled.
    fn record<'a, T>(
        &'a self,
        request: Request,
        call: impl FnOnce() -> Reply<'a, T> + Send + 'a,
        summarize: impl Fn(&T) -> Answer + Send + 'a,
    ) -> Reply<'a, T>
    where
        T: Send + 'a,
    {
        Box::pin(async move {
            let number = self.journal.sent(request);
            let result = call().await;
            let answer = match &result {
                Ok(answer) => summarize(answer),
                Err(error) => Answer::Failed(message(error)),
            };
            self.journal.answered(number, answer);
            result
        })
    }

    /// As [`record`](Self::record) for a batch, as one call for each item: each has its own
    /// result.
    fn record_each<'a, I, T>(
        &'a self,
        items: &'a [I],
        request: impl Fn(&I) -> Request + Send + 'a,
        call: impl FnOnce() -> Replies<'a, T> + Send + 'a,
        summarize: impl Fn(&I, &Result<T, Error>) -> Option<Answer> + Send + 'a,
    ) -> Replies<'a, T>
    where
        I: Sync,
        T: Send + 'a,
    {
        Box::pin(async move {
            let sent = items.iter().map(|item| self.journal.sent(request(item)));
            let numbers: Vec<_> = sent.collect();
            let results = call().await;
            for ((item, number), result) in items.iter().zip(numbers).zip(&results) {
                let failed = || match result {
                    Ok(_) => "an unknown answer".to_owned(),
                    Err(error) => message(error),
                };
                let answer = summarize(item, result);
                let answer = answer.unwrap_or_else(|| Answer::Failed(failed()));
                self.journal.answered(number, answer);
            }
            results
        })
    }
}

fn message(error: &Error) -> String {
    format!("{:?}: {error}", error.kind())
}

fn held(holds: &[Hold]) -> Vec<event::Held> {
    holds.iter().map(|hold| (hold.key.to_string(), hold.token.0)).collect()
}

fn finish(request: &FinishRequest) -> (String, u64, event::FinishKind) {
    let kind = match request.finish {
        Finish::Retry | Finish::RetryAfter(_) | Finish::RequeueAfter(_) => {
            event::FinishKind::Retry
        }
        Finish::Release => event::FinishKind::Release,
        Finish::GiveUp => event::FinishKind::GiveUp,
        Finish::Done | Finish::Succeed | _ => event::FinishKind::Done,
    };
    (request.hold.key.to_string(), request.hold.token.0, kind)
}

pub(crate) fn receipt(add: &Add, receipt: &Receipt) -> event::Receipt {
    let added = match receipt.added {
        Added::Duplicate => event::Added::Duplicate,
        Added::Ready | Added::Dirty | Added::Delayed | _ => event::Added::Changed,
    };
    let is_limited = matches!(add.when, When::RateLimited(Backoff { rate: Some(_), .. }));
    event::Receipt { added, rate_delay: is_limited.then(|| micros_of(receipt.delay)) }
}

fn finished(result: &Result<Finished, Error>) -> Option<event::FinishAnswer> {
    match result {
        Err(error) if changed_nothing(error) => Some(event::FinishAnswer::NotExecuted),
        Err(_) => None,
        Ok(Finished::LeaseLost) => Some(event::FinishAnswer::Refused),
        Ok(Finished::Dead) => Some(event::FinishAnswer::Dead),
        Ok(Finished::Done | Finished::Requeued | Finished::Delayed(_) | _) => {
            Some(event::FinishAnswer::Accepted)
        }
    }
}

/// Returns whether the store promises with this error that nothing was changed.
fn changed_nothing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::Full | ErrorKind::ReadOnly)
}

fn lease_request(request: &LeaseRequest) -> Request {
    let (owner, lease) = (request.owner.to_string(), micros_of(request.lease));
    Request::Lease { owner, lease }
}

/// Returns the named keys. No process of a run uses `All`: the history would not show which
/// keys that was.
fn names(which: &Which) -> Vec<String> {
    match which {
        Which::Keys(keys) => keys.iter().map(ToString::to_string).collect(),
        Which::All | _ => Vec::new(),
    }
}

fn grants(leased: &Leased) -> Answer {
    let grants = leased.grants.iter().map(|grant| event::Grant {
        key: grant.key.to_string(),
        token: grant.token.0,
        deliveries: grant.deliveries,
    });
    Answer::Leased(grants.collect())
}

impl Store for Recorder {
    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
        let request = |add: &Add| Request::Add(vec![add.key.to_string()]);
        let summarize = |add: &Add, answer: &Result<Receipt, Error>| {
            let answer = answer.as_ref().ok()?;
            Some(Answer::Added(vec![receipt(add, answer)]))
        };
        self.record_each(adds, request, || self.store.add(adds), summarize)
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        self.record(lease_request(request), || self.store.lease(request), grants)
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        holds: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        let request = move |hold: &Hold| Request::Extend {
            held: held(std::slice::from_ref(hold)),
            lease: micros_of(lease),
        };
        let call = move || self.store.extend(owner, holds, lease);
        let summarize = |_: &Hold, answer: &Result<bool, Error>| {
            Some(Answer::Extended(vec![*answer.as_ref().ok()?]))
        };
        self.record_each(holds, request, call, summarize)
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        let request = |request: &FinishRequest| Request::Finish(vec![finish(request)]);
        let summarize = |_: &FinishRequest, answer: &Result<Finished, Error>| {
            Some(Answer::Finished(vec![finished(answer)?]))
        };
        self.record_each(requests, request, || self.store.finish(requests), summarize)
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, holds: &'a [Hold]) -> Reply<'a, u64> {
        let request = Request::Reclaim { owner: owner.to_string(), held: held(holds) };
        self.record(
            request,
            || self.store.reclaim(owner, holds),
            |count| Answer::Reclaimed(*count),
        )
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        let summarize = |dead: &Vec<Dead>| {
            Answer::Dead(dead.iter().map(event::DeadKey::from).collect())
        };
        self.record(Request::Dead, move || self.store.dead(limit), summarize)
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        let call = || self.store.revive(which);
        self.record(Request::Revive(names(which)), call, |count| Answer::Removed(*count))
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        let call = || self.store.drop_dead(which);
        let request = Request::DropDead(names(which));
        self.record(request, call, |count| Answer::Removed(*count))
    }

    forward_store!(self => self.store; describe, heartbeat, expire, forget, remove, look,
        take, lane, stats,
        failing, workers, pause, resume, wait);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_finish_that_changed_something_is_recorded_as_accepted() {
        let error = |kind| Err(Error::new(kind, "why"));
        let answers = [
            Ok(Finished::Done),
            Ok(Finished::Dead),
            Ok(Finished::LeaseLost),
            error(ErrorKind::Busy),
            error(ErrorKind::Unknown),
        ];
        let expected = [
            Some(event::FinishAnswer::Accepted),
            Some(event::FinishAnswer::Dead),
            Some(event::FinishAnswer::Refused),
            Some(event::FinishAnswer::NotExecuted),
            None,
        ];
        assert_eq!(answers.map(|answer| finished(&answer)), expected);
    }
}
