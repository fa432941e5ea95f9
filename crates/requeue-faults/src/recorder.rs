//! A store that writes down what it is asked and what it answers.

use std::sync::Arc;
use std::time::Duration;

use requeue::Added;
use requeue_store::{
    Add, Backoff, Dead, End, Ending, Error, Finished, Hold, LeaseRequest, Leased, Owner,
    Receipt, Reply, Store, When, Which, forward_store, micros_of,
};

use crate::event::{self, Answer, Request};
use crate::journal::Journal;

/// The outermost layer: what it writes down is what the queue above it sees, attempt by
/// attempt.
#[derive(Clone)]
pub(crate) struct Recorder {
    store: Arc<dyn Store>,
    journal: Arc<Journal>,
}

impl Recorder {
    pub(crate) fn new(store: Arc<dyn Store>, journal: Arc<Journal>) -> Self {
        Self { store, journal }
    }

    /// Writes the first line before the call is even made: some stores act at once.
    fn record<'a, T>(
        &'a self,
        request: Request,
        call: impl FnOnce() -> Reply<'a, T> + Send + 'a,
        tell: impl Fn(&T) -> Answer + Send + 'a,
    ) -> Reply<'a, T>
    where
        T: Send + 'a,
    {
        Box::pin(async move {
            let number = self.journal.sent(request);
            let answer = call().await;
            let told = match &answer {
                Ok(answer) => tell(answer),
                Err(error) => Answer::Failed(chain(error)),
            };
            self.journal.answered(number, told);
            answer
        })
    }
}

fn chain(error: &Error) -> String {
    format!("{:?}: {error}", error.kind())
}

fn held(holds: &[Hold]) -> Vec<event::Held> {
    holds.iter().map(|hold| (hold.key.to_string(), hold.token.0)).collect()
}

fn ending(end: &End) -> (String, u64, event::Ending) {
    let ending = match end.ending {
        Ending::Retry { .. } | Ending::RetryAfter(_) => event::Ending::Retry,
        Ending::Release => event::Ending::Release,
        Ending::Bury { .. } => event::Ending::Bury,
        Ending::Done | Ending::Succeed | _ => event::Ending::Done,
    };
    (end.hold.key.to_string(), end.hold.token.0, ending)
}

pub(crate) fn receipt(add: &Add, receipt: &Receipt) -> event::Receipt {
    let added = match receipt.added {
        Added::Duplicate => event::Added::Duplicate,
        Added::Ready | Added::Dirty | Added::Delayed | Added::Closed | _ => {
            event::Added::Changed
        }
    };
    let is_paced = matches!(add.when, When::RateLimited(Backoff { rate: Some(_), .. }));
    event::Receipt { added, paced: is_paced.then(|| micros_of(receipt.delay)) }
}

fn finished(finished: &Finished) -> event::Finished {
    match finished {
        Finished::LeaseLost => event::Finished::Refused,
        Finished::Busy => event::Finished::Busy,
        Finished::Buried => event::Finished::Buried,
        Finished::Done | Finished::Requeued | Finished::Delayed(_) | _ => {
            event::Finished::Accepted
        }
    }
}

fn asked_for(request: &LeaseRequest, waits: bool) -> Request {
    let (owner, lease) = (request.owner.to_string(), micros_of(request.lease));
    Request::Lease { owner, lease, waits }
}

/// No process asks for all of the dead: it would not be known which those were.
fn exhume(which: &Which, drops: bool) -> Request {
    let keys = match which {
        Which::Keys(keys) => keys.iter().map(ToString::to_string).collect(),
        Which::All | _ => Vec::new(),
    };
    Request::Exhume { keys, drops }
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
        let tell = |told: &Vec<Receipt>| {
            let told = adds.iter().zip(told).map(|(add, told)| receipt(add, told));
            Answer::Added(told.collect())
        };
        self.record(Request::Add(keys), || self.store.add(adds), tell)
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        self.record(asked_for(request, false), || self.store.lease(request), grants)
    }

    fn wait_and_lease<'a>(
        &'a self,
        request: &'a LeaseRequest,
        at_most: Duration,
    ) -> Option<Reply<'a, Leased>> {
        let call = self.store.wait_and_lease(request, at_most)?;
        Some(self.record(asked_for(request, true), || call, grants))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        holds: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        let asked = Request::Extend { held: held(holds), lease: micros_of(lease) };
        self.record(
            asked,
            move || self.store.extend(owner, holds, lease),
            |answers| Answer::Extended(answers.clone()),
        )
    }

    fn finish<'a>(&'a self, ends: &'a [End]) -> Reply<'a, Vec<Finished>> {
        let asked = Request::Finish(ends.iter().map(ending).collect());
        self.record(
            asked,
            || self.store.finish(ends),
            |answers| Answer::Finished(answers.iter().map(finished).collect()),
        )
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, holds: &'a [Hold]) -> Reply<'a, u64> {
        let asked = Request::Reclaim { owner: owner.to_string(), held: held(holds) };
        self.record(
            asked,
            || self.store.reclaim(owner, holds),
            |count| Answer::Reclaimed(*count),
        )
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        let tell = |dead: &Vec<Dead>| {
            Answer::Dead(dead.iter().map(event::Corpse::from).collect())
        };
        self.record(Request::Dead, move || self.store.dead(limit), tell)
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        let call = || self.store.revive(which);
        self.record(exhume(which, false), call, |count| Answer::Exhumed(*count))
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        let call = || self.store.drop_dead(which);
        self.record(exhume(which, true), call, |count| Answer::Exhumed(*count))
    }

    forward_store!(self => self.store; describe, expire, forget, remove, look, stats,
        failing, workers, pause, resume, wait);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_changed_nothing_is_not_written_down_as_accepted() {
        let told =
            [Finished::Done, Finished::Buried, Finished::LeaseLost, Finished::Busy];
        let expected = [
            event::Finished::Accepted,
            event::Finished::Buried,
            event::Finished::Refused,
            event::Finished::Busy,
        ];
        assert_eq!(told.map(|told| finished(&told)), expected);
    }
}
