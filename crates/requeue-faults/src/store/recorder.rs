//! A store layer that records every call and its answer.

use std::sync::Arc;
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_store::{
    Add, Backoff, Dead, Error, FinishRequest, Finished, Hold, LeaseRequest, Leased,
    Owner, Receipt, Reply, Store, When, Which, forward_store, micros_of,
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

fn finished(finished: &Finished) -> event::FinishAnswer {
    match finished {
        Finished::LeaseLost => event::FinishAnswer::Refused,
        Finished::Busy => event::FinishAnswer::Busy,
        Finished::Dead => event::FinishAnswer::Dead,
        Finished::Done | Finished::Requeued | Finished::Delayed(_) | _ => {
            event::FinishAnswer::Accepted
        }
    }
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
    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        let keys = adds.iter().map(|add| add.key.to_string()).collect();
        let summarize = |receipts: &Vec<Receipt>| {
            let pairs = adds.iter().zip(receipts);
            Answer::Added(pairs.map(|(add, answer)| receipt(add, answer)).collect())
        };
        self.record(Request::Add(keys), || self.store.add(adds), summarize)
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        self.record(lease_request(request), || self.store.lease(request), grants)
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        holds: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        let request = Request::Extend { held: held(holds), lease: micros_of(lease) };
        self.record(
            request,
            move || self.store.extend(owner, holds, lease),
            |answers| Answer::Extended(answers.clone()),
        )
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Reply<'a, Vec<Finished>> {
        let request = Request::Finish(requests.iter().map(finish).collect());
        self.record(
            request,
            || self.store.finish(requests),
            |answers| Answer::Finished(answers.iter().map(finished).collect()),
        )
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

    forward_store!(self => self.store; describe, expire, forget, remove, look, stats,
        failing, workers, pause, resume, wait);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_finish_that_changed_something_is_recorded_as_accepted() {
        let answers =
            [Finished::Done, Finished::Dead, Finished::LeaseLost, Finished::Busy];
        let expected = [
            event::FinishAnswer::Accepted,
            event::FinishAnswer::Dead,
            event::FinishAnswer::Refused,
            event::FinishAnswer::Busy,
        ];
        assert_eq!(answers.map(|answer| finished(&answer)), expected);
    }
}
