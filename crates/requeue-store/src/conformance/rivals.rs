//! Several workers and adders on one store at once, and a ledger that knows what each of
//! them may rely on: a key is with one worker at a time, and what was added before a run
//! began is covered by a run that ended well.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue::Finish;

use super::tools::{Trial, add, finish_request, key, millis, request};
use crate::{Finished, Grant, Key, LeaseRequest, Owner, When};

const ADDERS: usize = 3;
const WORKERS: usize = 4;
const ROUNDS: usize = 60;
const KEYS: usize = 5;

#[derive(Default)]
struct Ledger {
    /// How often the thing that a key stands for has changed.
    versions: HashMap<Key, usize>,
    /// The last change that a run which ended well has seen.
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

    /// Changes things, and adds their keys after it.
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

    /// Works until there is nothing left to do and nobody adds any more.
    async fn works(self, number: usize) {
        let owner = Owner::new(format!("worker {number}"));
        let wish = LeaseRequest { owner, lease: Duration::MAX, ..request(2) };
        let mut turn = number;
        loop {
            let adders = self.adders.load(Ordering::SeqCst);
            let leased = self.trial.leased(&wish).await;
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
            assert!(ledger.holders.insert(grant.key.clone()), "{grant:?} has two holders");
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
        let well = matches!(finish, Finish::Done | Finish::Succeed);
        self.ledger().holders.remove(&grant.key);
        let finished = self.trial.finish_all(&[finish_request(grant, finish)]).await[0];
        assert_ne!(finished, Finished::LeaseLost, "{grant:?} was held");
        if well {
            let mut ledger = self.ledger();
            let seen = ledger.seen.entry(grant.key.clone()).or_default();
            *seen = version.max(*seen);
        }
    }
}

pub(super) async fn never_hold_a_key_together_and_lose_none(t: Trial) {
    let scene = Scene {
        trial: t.clone(),
        ledger: Arc::default(),
        adders: Arc::new(AtomicUsize::new(ADDERS)),
    };
    let adding = (0..ADDERS).map(|number| tokio::spawn(scene.clone().adds(number)));
    let working = (0..WORKERS).map(|number| tokio::spawn(scene.clone().works(number)));
    for task in adding.chain(working).collect::<Vec<_>>() {
        task.await.expect("no assertion of a task failed");
    }
    let ledger = scene.ledger();
    assert_eq!(ledger.seen, ledger.versions, "every change was seen by a run");
}
