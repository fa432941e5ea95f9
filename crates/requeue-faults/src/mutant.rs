//! Seeded bugs: a layer that makes a correct store break one promise.
//!
//! Each is what somebody once shipped, or nearly did. A checker that does not find them is
//! worth nothing.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use requeue::Added;
use requeue_store::{
    Add, Backoff, End, Ending, Error, Finished, Hold, Key, LeaseRequest, Leased, Look,
    Owner, Phase, Rate, Receipt, Reply, Store, Token, When, Which, forward_store,
    micros_of,
};

use crate::bug::Bug;
use crate::journal;

/// How many keys a clock that is ahead is asked about.
const REMEMBERED: usize = 64;

/// A store with a bug.
pub(crate) struct Mutant {
    store: Arc<dyn Store>,
    bug: Bug,
    /// Keys that were handed out last.
    recent: Mutex<VecDeque<Key>>,
    /// The tokens of the engine for those that were told.
    tokens: Mutex<HashMap<(Key, u64), Token>>,
    /// Where it stands since when the engine runs, if that is a process of its own.
    epoch: PathBuf,
    first: OnceLock<u64>,
    calls: AtomicU64,
    /// When a bucket that is this process's own is full again, in microseconds.
    full_at: Mutex<u64>,
}

/// Notes that the engine was started.
pub(crate) fn begin_epoch(folder: &Path) -> std::io::Result<()> {
    std::fs::write(folder.join("epoch"), journal::now().to_string())
}

impl Mutant {
    pub(crate) fn new(store: Arc<dyn Store>, bug: Bug, folder: &Path) -> Self {
        Self {
            store,
            bug,
            recent: Mutex::default(),
            tokens: Mutex::default(),
            epoch: folder.join("epoch"),
            first: OnceLock::new(),
            calls: AtomicU64::new(0),
            full_at: Mutex::default(),
        }
    }

    /// Looks at the keys of a call.
    async fn look_at<T>(
        &self,
        items: &[T],
        key: impl Fn(&T) -> &Key,
    ) -> Result<Vec<Look>, Error> {
        let keys: Vec<_> = items.iter().map(|item| key(item).clone()).collect();
        self.store.look(&keys).await
    }

    /// Carries out only some of the adds, and acknowledges all.
    async fn add_some(
        &self,
        adds: &[Add],
        skips: impl Fn(&Phase) -> bool,
    ) -> Result<Vec<Receipt>, Error> {
        let looks = self.look_at(adds, |add| &add.key).await?;
        let mut receipts = Vec::with_capacity(adds.len());
        for (add, look) in adds.iter().zip(looks) {
            if add.when == When::Now && skips(&look.phase) {
                receipts.push(Receipt { added: Added::Duplicate, delay: Duration::ZERO });
            } else {
                receipts.extend(self.store.add(std::slice::from_ref(add)).await?);
            }
        }
        Ok(receipts)
    }

    async fn add_latest(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let looks = self.look_at(adds, |add| &add.key).await?;
        for (add, look) in adds.iter().zip(looks) {
            let When::After(delay) = add.when else { continue };
            if look.phase == Phase::Absent && look.delayed.is_some_and(|old| old < delay)
            {
                self.store.remove(std::slice::from_ref(&add.key)).await?;
            }
        }
        self.store.add(adds).await
    }

    async fn add_by_own_bucket(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let own = |add: &Add| match add.when {
            When::RateLimited(Backoff { rate: Some(rate), .. }) => {
                Add { when: When::After(self.reserve(rate)), ..add.clone() }
            }
            When::Now | When::After(_) | When::RateLimited(_) | _ => add.clone(),
        };
        self.store.add(&adds.iter().map(own).collect::<Vec<_>>()).await
    }

    fn reserve(&self, rate: Rate) -> Duration {
        let (now, mut full_at) = (journal::now(), lock(&self.full_at));
        *full_at = now.max(*full_at) + micros_of(rate.interval);
        let in_advance = micros_of(rate.interval * rate.burst.get());
        Duration::from_micros(full_at.saturating_sub(now + in_advance).max(1))
    }

    /// Gives back what others hold: by a clock that is ahead, their leases have passed.
    async fn expire_by_own_clock(&self) -> Result<(), Error> {
        if !self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(8) {
            return Ok(());
        }
        let keys: Vec<_> = lock(&self.recent).iter().cloned().collect();
        let looks = self.store.look(&keys).await?;
        let held = keys.into_iter().zip(looks).filter_map(|(key, look)| {
            let Phase::Processing { token, .. } = look.phase else { return None };
            Some(Hold { key, token })
        });
        let ends: Vec<_> =
            held.map(|hold| End { hold, ending: Ending::Release }).collect();
        self.store.finish(&ends).await.map(drop)
    }

    fn remember(&self, leased: &Leased) {
        let mut recent = lock(&self.recent);
        recent.extend(leased.grants.iter().map(|grant| grant.key.clone()));
        let surplus = recent.len().saturating_sub(REMEMBERED);
        recent.drain(..surplus);
    }

    /// What the engine counts from: when it was started, or what an embedded one gave first.
    fn begun(&self, leased: &Leased) -> u64 {
        let epoch = std::fs::read_to_string(&self.epoch).ok();
        epoch.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            let first = leased.grants.first().map_or(0, |grant| grant.token.0);
            if first == 0 { 0 } else { *self.first.get_or_init(|| first - 1) }
        })
    }

    /// Tells tokens as if they were counted since the engine was started.
    fn count_tokens(&self, mut leased: Leased) -> Leased {
        let begun = self.begun(&leased);
        for grant in &mut leased.grants {
            let counted = grant.token.0.saturating_sub(begun);
            lock(&self.tokens).insert((grant.key.clone(), counted), grant.token);
            grant.token = Token(counted);
        }
        leased
    }

    fn real(&self, hold: &Hold) -> Hold {
        let place = (hold.key.clone(), hold.token.0);
        let token = lock(&self.tokens).get(&place).copied().unwrap_or(hold.token);
        Hold { key: hold.key.clone(), token }
    }

    fn real_all(&self, held: &[Hold]) -> Vec<Hold> {
        held.iter().map(|hold| self.real(hold)).collect()
    }

    fn lasts(&self, lease: Duration) -> Duration {
        if self.bug == Bug::EarlyExpiry { lease * 2 / 3 } else { lease }
    }

    async fn finish_real(&self, ends: &[End]) -> Result<Vec<Finished>, Error> {
        let real =
            |end: &End| End { hold: self.real(&end.hold), ending: end.ending.clone() };
        let ends: Vec<_> = ends.iter().map(real).collect();
        self.store.finish(&ends).await
    }

    async fn finish_unfenced(&self, ends: &[End]) -> Result<Vec<Finished>, Error> {
        let looks = self.look_at(ends, |end| &end.hold.key).await?;
        let present = |(end, look): (&End, Look)| {
            let mut end = end.clone();
            if let Phase::Processing { token, .. } = look.phase {
                end.hold.token = token;
            }
            end
        };
        let ends: Vec<_> = ends.iter().zip(looks).map(present).collect();
        self.store.finish(&ends).await
    }

    async fn finish_clean(&self, ends: &[End]) -> Result<Vec<Finished>, Error> {
        let looks = self.look_at(ends, |end| &end.hold.key).await?;
        let mut answers = Vec::with_capacity(ends.len());
        for (end, look) in ends.iter().zip(looks) {
            let is_dirty = matches!(look.phase, Phase::Processing { token, dirty: true, .. }
                if token == end.hold.token);
            if is_dirty {
                answers.push(Finished::Requeued);
            } else {
                answers.extend(self.store.finish(std::slice::from_ref(end)).await?);
            }
        }
        Ok(answers)
    }

    async fn finish_again(&self, ends: &[End]) -> Result<Vec<Finished>, Error> {
        let again = |end: &End| {
            let done = matches!(end.ending, Ending::Done | Ending::Succeed);
            let ending = if done && end.hold.token.0.is_multiple_of(4) {
                Ending::Release
            } else {
                end.ending.clone()
            };
            End { hold: end.hold.clone(), ending }
        };
        let ends: Vec<_> = ends.iter().map(again).collect();
        self.store.finish(&ends).await
    }
}

impl Store for Mutant {
    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        Box::pin(async move {
            match self.bug {
                Bug::NoDirtyBit => {
                    let skips = |phase: &Phase| matches!(phase, Phase::Processing { .. });
                    self.add_some(adds, skips).await
                }
                Bug::DoNothingAdd => {
                    self.add_some(adds, |phase| *phase != Phase::Absent).await
                }
                Bug::DeadStayDead => {
                    self.add_some(adds, |phase| *phase == Phase::Dead).await
                }
                Bug::LatestDelay => self.add_latest(adds).await,
                Bug::OwnBucket => self.add_by_own_bucket(adds).await,
                Bug::NoFence
                | Bug::ClientClock
                | Bug::TwoBranchDone
                | Bug::IncrToken
                | Bug::EarlyExpiry
                | Bug::ExtraRun
                | Bug::ForgetfulEngine
                | Bug::NoGrave => self.store.add(adds).await,
            }
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(async move {
            if self.bug == Bug::ClientClock {
                self.expire_by_own_clock().await?;
            }
            if self.bug == Bug::NoGrave {
                self.store.drop_dead(&Which::All).await?;
            }
            let lease = self.lasts(request.lease);
            let request = LeaseRequest { lease, ..request.clone() };
            let leased = self.store.lease(&request).await?;
            self.remember(&leased);
            Ok(if self.bug == Bug::IncrToken {
                self.count_tokens(leased)
            } else {
                leased
            })
        })
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        Box::pin(async move {
            self.store.extend(owner, &self.real_all(held), self.lasts(lease)).await
        })
    }

    fn finish<'a>(&'a self, ends: &'a [End]) -> Reply<'a, Vec<Finished>> {
        Box::pin(async move {
            match self.bug {
                Bug::NoFence => self.finish_unfenced(ends).await,
                Bug::TwoBranchDone => self.finish_clean(ends).await,
                Bug::ExtraRun => self.finish_again(ends).await,
                Bug::NoDirtyBit
                | Bug::ClientClock
                | Bug::DoNothingAdd
                | Bug::IncrToken
                | Bug::EarlyExpiry
                | Bug::LatestDelay
                | Bug::ForgetfulEngine
                | Bug::NoGrave
                | Bug::DeadStayDead
                | Bug::OwnBucket => self.finish_real(ends).await,
            }
        })
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        Box::pin(async move { self.store.reclaim(owner, &self.real_all(held)).await })
    }

    forward_store!(self => self.store; describe, expire, forget, remove, look, stats,
        failing, workers, dead, revive, drop_dead, pause, resume, wait);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
