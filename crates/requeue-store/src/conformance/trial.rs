//! The tools of the checks.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use requeue::{Added, Finish};

use crate::{
    Add, Backoff, EngineClock, Error, ErrorKind, Expired, FinishRequest, Finished, Grant,
    Hold, Key, LeaseRequest, Leased, Look, Owner, Phase, Rate, Receipt, RepliesExt,
    Stats, Store, TakeRequest, Taken, When,
};

/// The length of leases.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// The delay of a dead key that is added again.
pub(super) const REVIVE: Duration = Duration::from_secs(1000);
/// The error of failed runs.
pub(super) const ERROR: &str = "broken";
/// The resolution of engines.
pub(super) const TICK: Duration = Duration::from_micros(1);

/// A store with a new queue, and the clock of its engine.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "stores do not implement it")]
pub struct Trial {
    pub(super) store: Arc<dyn Store>,
    /// Another handle of the same queue, as another process has, or the same.
    pub(super) other: Arc<dyn Store>,
    pub(super) clock: EngineClock,
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).expect("short enough")
}

pub(super) fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| key(name)).collect()
}

/// Returns the keys "0", "1" and so on.
pub(super) fn numbered(count: usize) -> Vec<Key> {
    (0..count).map(|number| key(&number.to_string())).collect()
}

pub(super) fn add(key: &Key, when: When) -> Add {
    Add { revive_after: REVIVE, ..Add::new(key.clone(), when) }
}

pub(super) fn adds_now(keys: &[Key]) -> Vec<Add> {
    keys.iter().map(|key| add(key, When::Now)).collect()
}

pub(super) fn with_priority(name: &str, when: When, priority: i8) -> Add {
    Add { priority, ..add(&key(name), when) }
}

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn just_before(time: Duration) -> Duration {
    time.saturating_sub(TICK)
}

pub(super) fn worker() -> Owner {
    Owner::new("worker")
}

pub(super) fn request(max: usize) -> LeaseRequest {
    LeaseRequest { owner: worker(), max, lease: LEASE, max_deliveries: None }
}

pub(super) fn hold(grant: &Grant) -> Hold {
    Hold { key: grant.key.clone(), token: grant.token }
}

/// A finish with the default backoff. The error of a failed run is [`ERROR`].
pub(super) fn finish_request(grant: &Grant, finish: Finish) -> FinishRequest {
    FinishRequest::new(hold(grant), finish).with_error(ERROR)
}

/// A backoff without delays, except for those of the rate.
pub(super) fn at_once(rate: Option<Rate>) -> Backoff {
    Backoff { base: Duration::ZERO, max: Duration::ZERO, rate }
}

/// The sorted keys of grants. Stores with partitions lease them in any order.
pub(super) fn sorted(grants: &[Grant]) -> Vec<Key> {
    let mut keys: Vec<_> = grants.iter().map(|grant| grant.key.clone()).collect();
    keys.sort();
    keys
}

/// Formats a look, for example `dirty, delayed 5s, failures 1`.
///
/// Zeros are omitted, and so are the deliveries of a dead key. It is not specified if those
/// include the last one.
pub(super) fn summary(look: &Look) -> String {
    let phase = match &look.phase {
        Phase::Absent => "absent",
        Phase::Ready => "ready",
        Phase::Processing { dirty: false, .. } => "processing",
        Phase::Processing { dirty: true, .. } => "dirty",
        Phase::Dead => "dead",
    };
    let delayed = look.delayed.map(|delay| format!("delayed {delay:?}"));
    let count = |name: &str, count: u32| (count > 0).then(|| format!("{name} {count}"));
    let deliveries = if look.phase == Phase::Dead { 0 } else { look.deliveries };
    let counts = [count("failures", look.failures), count("deliveries", deliveries)];
    let rest = delayed.into_iter().chain(counts.into_iter().flatten());
    [phase.to_owned()].into_iter().chain(rest).collect::<Vec<_>>().join(", ")
}

/// Requests of which those are repeated whose key another call has locked for a moment:
/// nothing was changed for them.
struct Repeated<'a, I, T> {
    requests: &'a [I],
    answers: Vec<Option<T>>,
}

impl<'a, I: Clone, T: Clone> Repeated<'a, I, T> {
    fn new(requests: &'a [I]) -> Self {
        Self { requests, answers: vec![None; requests.len()] }
    }

    /// The requests without an answer.
    fn open(&self) -> Vec<I> {
        let pairs = self.requests.iter().zip(&self.answers);
        pairs.filter(|(_, answer)| answer.is_none()).map(|pair| pair.0.clone()).collect()
    }

    /// Records the results for the open requests. Returns all answers once there are.
    fn record(&mut self, results: Vec<Result<T, Error>>) -> Option<Vec<T>> {
        assert_eq!(results.len(), self.open().len(), "one result for each request");
        let open = self.answers.iter_mut().filter(|answer| answer.is_none());
        for (answer, result) in open.zip(results) {
            match result {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                result => *answer = Some(result.expect("the call succeeds")),
            }
        }
        self.answers.iter().cloned().collect()
    }
}

impl Trial {
    /// Adds keys, and repeats those that are busy.
    pub(super) async fn receipts(&self, adds: &[Add]) -> Vec<Receipt> {
        let mut repeated = Repeated::new(adds);
        loop {
            let results = self.store.add(&repeated.open()).await;
            if let Some(receipts) = repeated.record(results) {
                return receipts;
            }
        }
    }

    pub(super) async fn adds(&self, adds: &[Add]) -> Vec<Added> {
        self.receipts(adds).await.iter().map(|receipt| receipt.added).collect()
    }

    pub(super) async fn add_when(&self, name: &str, when: When) -> Receipt {
        self.receipts(&[add(&key(name), when)]).await[0]
    }

    pub(super) async fn add(&self, name: &str) -> Added {
        self.add_when(name, When::Now).await.added
    }

    pub(super) async fn add_after(&self, name: &str, delay: Duration) -> Added {
        self.add_when(name, When::After(delay)).await.added
    }

    pub(super) async fn add_with_priority(&self, name: &str, priority: i8) -> Added {
        self.adds(&[with_priority(name, When::Now, priority)]).await[0]
    }

    /// Makes one lease call.
    pub(super) async fn lease_call(&self, request: &LeaseRequest) -> Leased {
        let leased = self.store.lease(request).await.expect("lease succeeds");
        assert!(leased.grants.len() <= request.max, "at most `max` keys");
        leased
    }

    /// Leases until `max` keys are leased or no more are ready. One call may stop early, at
    /// the keys that it moves or at the end of a partition.
    pub(super) async fn lease_all(&self, request: &LeaseRequest) -> Vec<Grant> {
        let mut request = request.clone();
        let mut grants = Vec::new();
        for _ in 0..100 {
            let leased = self.lease_call(&request).await;
            request.max -= leased.grants.len();
            let empty =
                leased.grants.is_empty() && leased.more_in != Some(Duration::ZERO);
            grants.extend(leased.grants);
            if empty || leased.paused || request.max == 0 {
                break;
            }
        }
        grants
    }

    pub(super) async fn lease(&self, max: usize) -> Vec<Grant> {
        self.lease_all(&request(max)).await
    }

    /// Leases the only ready key.
    pub(super) async fn lease_one(&self) -> Grant {
        let mut grants = self.lease(2).await;
        assert_eq!(grants.len(), 1, "one key is ready: {grants:?}");
        grants.remove(0)
    }

    /// Adds a key and leases it.
    pub(super) async fn lease_new(&self, name: &str) -> Grant {
        self.add(name).await;
        let grant = self.lease_one().await;
        assert_eq!(grant.key, key(name));
        grant
    }

    /// Adds a key with one failure and leases it.
    pub(super) async fn lease_failed(&self, name: &str) -> Grant {
        self.add_when(name, When::RateLimited(Backoff::default())).await;
        self.clock.advance(millis(5));
        self.lease_one().await
    }

    pub(super) async fn make_dead(&self, name: &str) {
        let grant = self.lease_new(name).await;
        assert_eq!(self.finish(&grant, Finish::GiveUp).await, Finished::Dead);
    }

    pub(super) async fn finish(&self, grant: &Grant, finish: Finish) -> Finished {
        self.finish_all(&[finish_request(grant, finish)]).await[0]
    }

    pub(super) async fn finish_with_error(
        &self,
        grant: &Grant,
        finish: Finish,
        error: &str,
    ) -> Finished {
        self.finish_all(&[finish_request(grant, finish).with_error(error)]).await[0]
    }

    pub(super) async fn retry_with(&self, grant: &Grant, backoff: Backoff) -> Finished {
        let request = FinishRequest { backoff, ..finish_request(grant, Finish::Retry) };
        self.finish_all(&[request]).await[0]
    }

    /// Finishes leases, and repeats those whose key is busy.
    pub(super) async fn finish_all(&self, requests: &[FinishRequest]) -> Vec<Finished> {
        let mut repeated = Repeated::new(requests);
        loop {
            let results = self.store.finish(&repeated.open()).await;
            if let Some(finished) = repeated.record(results) {
                return finished;
            }
        }
    }

    pub(super) async fn extend(&self, grant: &Grant, lease: Duration) -> bool {
        let holds = [hold(grant)];
        let held = self.store.extend(&worker(), &holds, lease).all().await;
        held.expect("extend succeeds")[0]
    }

    pub(super) async fn take(&self, request: &TakeRequest) -> Taken {
        self.store.take(request).await.expect("take succeeds")
    }

    pub(super) async fn expire(&self, max_deliveries: Option<u32>) -> Expired {
        let max = max_deliveries.and_then(NonZeroU32::new);
        self.store.expire(max).await.expect("expire succeeds")
    }

    pub(super) async fn look(&self, name: &str) -> Look {
        let looks = self.store.look(&keys(&[name])).all().await.expect("look succeeds");
        assert_eq!(looks.len(), 1, "one look for each key");
        looks[0].clone()
    }

    /// Returns the [`summary`] of a key.
    pub(super) async fn state(&self, name: &str) -> String {
        summary(&self.look(name).await)
    }

    pub(super) async fn stats(&self) -> Stats {
        self.store.stats().await.expect("stats succeeds")
    }

    pub(super) async fn remove(&self, name: &str) -> bool {
        self.store.remove(&keys(&[name])).all().await.expect("remove succeeds")[0]
    }

    pub(super) async fn forget(&self, name: &str) {
        self.store.forget(&keys(&[name])).all().await.expect("forget succeeds");
    }
}
