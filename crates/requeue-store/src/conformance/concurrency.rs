//! Several concurrent workers and producers on one store. A ledger checks that no key has
//! two holders at once, and that every add is followed by a successful run.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue::Finish;

use super::trial::{Trial, add, finish_request, key, millis, request};
use crate::{Finished, Grant, Key, LeaseRequest, Owner, When};

const ADDERS: usize = 3;
const WORKERS: usize = 4;
const ROUNDS: usize = 60;
const KEYS: usize = 5;

#[derive(Default)]
struct Ledger {
    /// The number of changes of each key's object.
    versions: HashMap<Key, usize>,
    /// The last change that a successful run has seen.
    seen: HashMap<Key, usize>,
    holders: HashSet<Key>,
}

#[derive(Clone)]
struct Scene {
    trial: Trial,
    ledger: Arc<Mutex<Ledger>>,
    adders: Arc<AtomicUsize>,
}

impl Scene {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes objects and adds their keys afterwards.
    async fn adds(self, number: usize) {
        for round in 0..ROUNDS {
            let name = key(&((round + number) % KEYS).to_string());
            *self.ledger().versions.entry(name.clone()).or_default() += 1;
            let delay = if round % 7 == 0 { millis(1) } else { Duration::ZERO };
            self.trial.receipts(&[add(&name, When::After(delay))]).await;
            self.trial.clock.advance(millis(1));
        }
        self.adders.fetch_sub(1, Ordering::SeqCst);
    }

    /// Processes keys until none is left and the producers have ended.
    async fn works(self, number: usize) {
        let owner = Owner::new(format!("worker {number}"));
        let request = LeaseRequest { owner, lease: Duration::MAX, ..request(2) };
        let mut turn = number;
        loop {
            let adders = self.adders.load(Ordering::SeqCst);
            let leased = self.trial.lease_call(&request).await;
            if leased.grants.is_empty() && adders == 0 && self.is_idle().await {
                return;
            }
            for grant in leased.grants {
                turn += 1;
                self.runs(&grant, turn).await;
            }
            self.trial.clock.advance(millis(1));
            tokio::task::yield_now().await;
        }
    }

    async fn is_idle(&self) -> bool {
        let stats = self.trial.stats().await;
        (stats.ready, stats.delayed, stats.processing) == (0, 0, 0)
    }

    async fn runs(&self, grant: &Grant, turn: usize) {
        let version = {
            let mut ledger = self.ledger();
            assert!(
                ledger.holders.insert(grant.key.clone()),
                "{grant:?} has two holders"
            );
            ledger.versions[&grant.key]
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
        self.ledger().holders.remove(&grant.key);
        let finished = self.trial.finish_all(&[finish_request(grant, finish)]).await[0];
        assert_ne!(finished, Finished::LeaseLost, "{grant:?} was held");
        if succeeded {
            let mut ledger = self.ledger();
            let seen = ledger.seen.entry(grant.key.clone()).or_default();
            *seen = version.max(*seen);
        }
    }
}

pub(super) async fn workers_never_share_a_key_and_lose_no_add(t: Trial) {
    let scene = Scene {
        trial: t.clone(),
        ledger: Arc::default(),
        adders: Arc::new(AtomicUsize::new(ADDERS)),
    };
    let adding = (0..ADDERS).map(|number| tokio::spawn(scene.clone().adds(number)));
    let working = (0..WORKERS).map(|number| tokio::spawn(scene.clone().works(number)));
    for task in adding.chain(working).collect::<Vec<_>>() {
        task.await.expect("a task failed");
    }
    let ledger = scene.ledger();
    assert_eq!(ledger.seen, ledger.versions, "every change was seen by a run");
}
