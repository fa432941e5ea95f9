//! What the checks are written with.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use requeue::{Added, Finish};

use crate::{
    Add, Backoff, EngineClock, Expired, FinishRequest, Finished, Grant, Hold, Key,
    LeaseRequest, Leased, Look, Owner, Phase, Rate, Receipt, Stats, Store, When,
};

/// How long leases last here.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// How long a dead key waits here after it is added.
pub(super) const REVIVE: Duration = Duration::from_secs(1000);
/// The error of failed runs.
pub(super) const ERROR: &str = "broken";
/// The least that engines tell apart.
pub(super) const TICK: Duration = Duration::from_micros(1);

/// A store on a queue of its own, and the clock that is its time.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a store has none")]
pub struct Trial {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: EngineClock,
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).expect("short enough")
}

pub(super) fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| key(name)).collect()
}

/// So many keys with numbers for names.
pub(super) fn many(count: usize) -> Vec<Key> {
    (0..count).map(|number| key(&number.to_string())).collect()
}

pub(super) fn add(key: &Key, when: When) -> Add {
    Add { revive_after: REVIVE, ..Add::new(key.clone(), when) }
}

pub(super) fn all_now(keys: &[Key]) -> Vec<Add> {
    keys.iter().map(|key| add(key, When::Now)).collect()
}

/// An add of this priority.
pub(super) fn ranked(name: &str, when: When, priority: i8) -> Add {
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

/// A finish with the default backoff. A failed run has the error [`ERROR`].
pub(super) fn finish_request(grant: &Grant, finish: Finish) -> FinishRequest {
    FinishRequest::new(hold(grant), finish).with_error(ERROR)
}

/// A backoff that makes no key wait for itself.
pub(super) fn at_once(rate: Option<Rate>) -> Backoff {
    Backoff { base: Duration::ZERO, max: Duration::ZERO, rate }
}

/// The keys of grants, sorted: stores with partitions hand them out in an order of theirs.
pub(super) fn sorted(grants: &[Grant]) -> Vec<Key> {
    let mut keys: Vec<_> = grants.iter().map(|grant| grant.key.clone()).collect();
    keys.sort();
    keys
}

/// A look in words, such as `dirty, delayed 5s, failures 1`. What is 0 is not said, and the
/// deliveries of a dead key neither: whether the grant that ended counts is left open.
pub(super) fn words(look: &Look) -> String {
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

impl Trial {
    pub(super) async fn receipts(&self, adds: &[Add]) -> Vec<Receipt> {
        let receipts = self.store.add(adds).await.expect("keys are added");
        assert_eq!(receipts.len(), adds.len(), "there is a receipt for each add");
        receipts
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

    pub(super) async fn add_ranked(&self, name: &str, priority: i8) -> Added {
        self.adds(&[ranked(name, When::Now, priority)]).await[0]
    }

    /// One call, whatever it gives.
    pub(super) async fn leased(&self, request: &LeaseRequest) -> Leased {
        let leased = self.store.lease(request).await.expect("keys are leased");
        assert!(leased.grants.len() <= request.max, "no more than were asked for");
        leased
    }

    /// As many as asked for, if there are: a call may stop early at what it moves, or at
    /// the end of a partition.
    pub(super) async fn lease_as(&self, request: &LeaseRequest) -> Vec<Grant> {
        let mut request = request.clone();
        let mut grants = Vec::new();
        for _ in 0..100 {
            let leased = self.leased(&request).await;
            request.max -= leased.grants.len();
            let dry = leased.grants.is_empty() && leased.more_in != Some(Duration::ZERO);
            grants.extend(leased.grants);
            if dry || leased.paused || request.max == 0 {
                break;
            }
        }
        grants
    }

    pub(super) async fn lease(&self, max: usize) -> Vec<Grant> {
        self.lease_as(&request(max)).await
    }

    /// Leases the one key that is ready.
    pub(super) async fn lease_one(&self) -> Grant {
        let mut grants = self.lease(2).await;
        assert_eq!(grants.len(), 1, "one key is ready: {grants:?}");
        grants.remove(0)
    }

    /// Adds a key, and leases it.
    pub(super) async fn take(&self, name: &str) -> Grant {
        self.add(name).await;
        let grant = self.lease_one().await;
        assert_eq!(grant.key, key(name));
        grant
    }

    /// A key that failed once and is with a worker again.
    pub(super) async fn take_failed(&self, name: &str) -> Grant {
        self.add_when(name, When::RateLimited(Backoff::default())).await;
        self.clock.advance(millis(5));
        self.lease_one().await
    }

    /// A key that is dead.
    pub(super) async fn dead(&self, name: &str) {
        let grant = self.take(name).await;
        assert_eq!(self.finish(&grant, Finish::GiveUp).await, Finished::Buried);
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

    pub(super) async fn finish_all(&self, requests: &[FinishRequest]) -> Vec<Finished> {
        let finished = self.store.finish(requests).await.expect("leases are finished");
        assert_eq!(finished.len(), requests.len(), "there is an answer for each request");
        finished
    }

    pub(super) async fn extend(&self, grant: &Grant, lease: Duration) -> bool {
        let holds = [hold(grant)];
        let kept = self.store.extend(&worker(), &holds, lease).await;
        kept.expect("leases are extended")[0]
    }

    pub(super) async fn expire(&self, max_deliveries: Option<u32>) -> Expired {
        let max = max_deliveries.and_then(NonZeroU32::new);
        self.store.expire(max).await.expect("what is due is moved")
    }

    pub(super) async fn look(&self, name: &str) -> Look {
        let looks = self.store.look(&keys(&[name])).await.expect("keys are looked up");
        assert_eq!(looks.len(), 1, "there is a look for each key");
        looks[0].clone()
    }

    /// What a look says, in [`words`].
    pub(super) async fn shows(&self, name: &str) -> String {
        words(&self.look(name).await)
    }

    pub(super) async fn stats(&self) -> Stats {
        self.store.stats().await.expect("the queue can be counted")
    }

    pub(super) async fn remove(&self, name: &str) -> bool {
        self.store.remove(&keys(&[name])).await.expect("keys are removed")[0]
    }

    pub(super) async fn forget(&self, name: &str) {
        self.store.forget(&keys(&[name])).await.expect("failures are forgotten");
    }
}
