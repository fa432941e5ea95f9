//! Concurrent workers and producers: no key has two holders at once, and every add is
//! followed by a successful run.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue::Finish;

use super::trial::{Trial, add, finish_request, key, millis, request};
use crate::{Finished, Grant, Key, LeaseRequest, Owner, When};

const PRODUCERS: usize = 3;
const WORKERS: usize = 4;
const ROUNDS: usize = 60;
const KEYS: usize = 5;

/// The observations of all tasks.
#[derive(Default)]
struct Observed {
    /// The number of changes of each key's object.
    versions: HashMap<Key, usize>,
    /// The last change that a successful run has seen.
    seen: HashMap<Key, usize>,
    holders: HashSet<Key>,
}

/// The state that all tasks share.
#[derive(Clone)]
struct Workload {
    trial: Trial,
    observed: Arc<Mutex<Observed>>,
    producers: Arc<AtomicUsize>,
}

impl Workload {
    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes objects, then adds their keys.
    async fn produce(self, number: usize) {
        for round in 0..ROUNDS {
            let name = key(&((round + number) % KEYS).to_string());
            *self.observed().versions.entry(name.clone()).or_default() += 1;
            let delay = if round % 7 == 0 { millis(1) } else { Duration::ZERO };
            self.trial.receipts(&[add(&name, When::After(delay))]).await;
            self.trial.clock.advance(millis(1));
        }
        self.producers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Processes keys until none is left and the producers have ended.
    async fn work(self, number: usize) {
        let owner = Owner::new(format!("worker {number}"));
        let request = LeaseRequest { owner, lease: Duration::MAX, ..request(2) };
        let mut turn = number;
        loop {
            let producers = self.producers.load(Ordering::SeqCst);
            let leased = self.trial.lease_call(&request).await;
            if leased.grants.is_empty() && producers == 0 && self.is_idle().await {
                return;
            }
            for grant in leased.grants {
                turn += 1;
                self.run(&grant, turn).await;
            }
            self.trial.clock.advance(millis(1));
            tokio::task::yield_now().await;
        }
    }

    async fn is_idle(&self) -> bool {
        let stats = self.trial.stats().await;
        (stats.ready, stats.delayed, stats.processing) == (0, 0, 0)
    }

    async fn run(&self, grant: &Grant, turn: usize) {
        let version = {
            let mut observed = self.observed();
            assert!(
                observed.holders.insert(grant.key.clone()),
                "{grant:?} has two holders"
            );
            observed.versions[&grant.key]
        };
        tokio::task::yield_now().await;
        let finish = match turn % 6 {
            0 => Finish::Release,
            1 => Finish::RequeueAfter(millis(1)),
            2 => Finish::RequeueAfter(Duration::ZERO),
            3 => Finish::Succeed,
            _ => Finish::Done,
        };
        let succeeded = matches!(finish, Finish::Done | Finish::Succeed);
        self.observed().holders.remove(&grant.key);
        let finished = self.trial.finish_all(&[finish_request(grant, finish)]).await[0];
        assert_ne!(finished, Finished::LeaseLost, "{grant:?} was held");
        if succeeded {
            let mut observed = self.observed();
            let seen = observed.seen.entry(grant.key.clone()).or_default();
            *seen = version.max(*seen);
        }
    }
}

pub(super) async fn workers_never_share_a_key_and_lose_no_add(t: Trial) {
    let workload = Workload {
        trial: t.clone(),
        observed: Arc::default(),
        producers: Arc::new(AtomicUsize::new(PRODUCERS)),
    };
    let producing = (0..PRODUCERS).map(|number| tokio::spawn(workload.clone().produce(number)));
    let working = (0..WORKERS).map(|number| tokio::spawn(workload.clone().work(number)));
    for task in producing.chain(working).collect::<Vec<_>>() {
        task.await.expect("a task failed");
    }
    let observed = workload.observed();
    assert_eq!(observed.seen, observed.versions, "every change was seen by a run");
}
