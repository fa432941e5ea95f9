//! A store layer that adds a seeded bug to a correct store.
//!
//! Each bug was once shipped in some queue, or nearly. A checker that misses them proves
//! nothing.
#![expect(clippy::wildcard_enum_match_arm, reason = "most bugs leave most calls alone")]

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use requeue::{Added, Finish};
use requeue_store::{
    Add, Backoff, Error, FinishRequest, Finished, Hold, Key, LeaseRequest, Leased, Look,
    Owner, Phase, Rate, Receipt, Replies, RepliesExt, Reply, Store, Token, When, Which,
    every, forward_store, micros_of, within,
};
use tokio::sync::Notify;

use crate::run::plan::MAX_DELIVERIES;
use crate::store::bug::Bug;
use crate::time::now;

/// How many leased keys `Bug::ClientClock` remembers.
const RECENT_KEYS: usize = 64;

pub(crate) struct BuggyStore {
    store: Arc<dyn Store>,
    bug: Bug,
    /// The keys that were leased last.
    recent: Mutex<VecDeque<Key>>,
    /// The real tokens, by key and the token that `Bug::TokensRestart` reported.
    tokens: Mutex<HashMap<(Key, u64), Token>>,
    /// The file with the start time of the server, if there is a server.
    server_start: PathBuf,
    /// The first token of an embedded store.
    first_token: OnceLock<u64>,
    calls: AtomicU64,
    /// When the bucket of this process is full again, in microseconds.
    full_at: Mutex<u64>,
    /// The time at which the heartbeat wakes up, in microseconds.
    sleeps_until: Arc<AtomicU64>,
    /// Notified by ready keys, for `Bug::UnnoticedDelay`.
    ready: Notify,
}

/// How far and how often `Bug::TokensGoBack` sets the tokens back, in microseconds.
const SET_BACK: u64 = 10_000_000;
const SET_BACK_INTERVAL: u64 = 1_500_000;

const SERVER_START: &str = "server-start";

/// Writes down when the server was started, for `Bug::TokensRestart`.
pub(crate) fn record_server_start(folder: &Path) -> std::io::Result<()> {
    std::fs::write(folder.join(SERVER_START), now().to_string())
}

impl BuggyStore {
    pub(crate) fn new(store: Arc<dyn Store>, bug: Bug, folder: &Path) -> Self {
        Self {
            store,
            bug,
            recent: Mutex::default(),
            tokens: Mutex::default(),
            server_start: folder.join(SERVER_START),
            first_token: OnceLock::new(),
            calls: AtomicU64::new(0),
            full_at: Mutex::default(),
            sleeps_until: Arc::default(),
            ready: Notify::new(),
        }
    }

    /// Looks up the keys of a call.
    async fn look_at<T>(
        &self,
        items: &[T],
        key: impl Fn(&T) -> &Key,
    ) -> Result<Vec<Look>, Error> {
        let keys: Vec<_> = items.iter().map(|item| key(item).clone()).collect();
        self.store.look(&keys).all().await
    }

    /// Acknowledges all adds but skips those of keys in some phase.
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
                receipts.extend(self.store.add(std::slice::from_ref(add)).all().await?);
            }
        }
        Ok(receipts)
    }

    /// Acknowledges adds of keys that are being delivered for the last time, and drops them.
    async fn add_unless_last_delivery(
        &self,
        adds: &[Add],
    ) -> Result<Vec<Receipt>, Error> {
        let looks = self.look_at(adds, |add| &add.key).await?;
        let mut receipts = Vec::with_capacity(adds.len());
        for (add, look) in adds.iter().zip(looks) {
            let is_processing = matches!(look.phase, Phase::Processing { .. });
            if is_processing && look.deliveries >= MAX_DELIVERIES.get() {
                receipts.push(Receipt { added: Added::Dirty, delay: Duration::ZERO });
            } else {
                receipts.extend(self.store.add(std::slice::from_ref(add)).all().await?);
            }
        }
        Ok(receipts)
    }

    /// Extends leases unless the heartbeat still sleeps. A call that is not answered keeps it
    /// from the next calls for two thirds of the lease.
    async fn extend_after_sleep(
        &self,
        lease: Duration,
        extending: Replies<'_, bool>,
    ) -> Vec<Result<bool, Error>> {
        let start = now();
        if start < self.sleeps_until.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let oversleeps = Oversleeps {
            sleeps_until: Arc::clone(&self.sleeps_until),
            until: start + micros_of(lease) * 7 / 10,
        };
        let answers = extending.await;
        oversleeps.cancel();
        answers
    }

    /// Waits as if only ready keys of this process ended a wait.
    async fn wait_for_ready_key(&self, at_most: Duration) -> Result<(), Error> {
        within(at_most, self.ready.notified()).await;
        Ok(())
    }

    async fn add_latest(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let looks = self.look_at(adds, |add| &add.key).await?;
        for (add, look) in adds.iter().zip(looks) {
            let When::After(delay) = add.when else { continue };
            if look.phase == Phase::Absent && look.delayed.is_some_and(|old| old < delay)
            {
                self.store.remove(std::slice::from_ref(&add.key)).all().await?;
            }
        }
        self.store.add(adds).all().await
    }

    async fn add_with_own_bucket(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let own = |add: &Add| match add.when {
            When::RateLimited(Backoff { rate: Some(rate), .. }) => {
                Add { when: When::After(self.reserve(rate)), ..add.clone() }
            }
            When::Now | When::After(_) | When::RateLimited(_) | _ => add.clone(),
        };
        self.store.add(&adds.iter().map(own).collect::<Vec<_>>()).all().await
    }

    fn reserve(&self, rate: Rate) -> Duration {
        let (now, mut full_at) = (now(), lock(&self.full_at));
        *full_at = now.max(*full_at) + micros_of(rate.interval);
        let in_advance = micros_of(rate.interval * rate.burst.get());
        Duration::from_micros(full_at.saturating_sub(now + in_advance).max(1))
    }

    /// Releases the leases of other workers: by a clock that is ahead, they have expired.
    async fn expire_by_own_clock(&self) -> Result<(), Error> {
        if !self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(8) {
            return Ok(());
        }
        let keys: Vec<_> = lock(&self.recent).iter().cloned().collect();
        let looks = self.store.look(&keys).all().await?;
        let held = keys.into_iter().zip(looks).filter_map(|(key, look)| {
            let Phase::Processing { token, .. } = look.phase else { return None };
            Some(Hold { key, token })
        });
        let requests: Vec<_> =
            held.map(|hold| FinishRequest::new(hold, Finish::Release)).collect();
        self.store.finish(&requests).all().await.map(drop)
    }

    fn remember(&self, leased: &Leased) {
        let mut recent = lock(&self.recent);
        recent.extend(leased.grants.iter().map(|grant| grant.key.clone()));
        let surplus = recent.len().saturating_sub(RECENT_KEYS);
        recent.drain(..surplus);
    }

    /// Returns the token that counts as 0: the start time of the server, or the one before
    /// the first token of an embedded store.
    fn token_base(&self, leased: &Leased) -> u64 {
        let start = std::fs::read_to_string(&self.server_start).ok();
        start.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            let first = leased.grants.first().map_or(0, |grant| grant.token.0);
            if first == 0 { 0 } else { *self.first_token.get_or_init(|| first - 1) }
        })
    }

    /// Reports tokens as if they counted from `base`.
    fn subtract_from_tokens(&self, mut leased: Leased, base: u64) -> Leased {
        for grant in &mut leased.grants {
            let counted = grant.token.0.saturating_sub(base);
            lock(&self.tokens).insert((grant.key.clone(), counted), grant.token);
            grant.token = Token(counted);
        }
        leased
    }

    /// Restores the real token of a hold.
    fn real(&self, hold: &Hold) -> Hold {
        let reported = (hold.key.clone(), hold.token.0);
        let token = lock(&self.tokens).get(&reported).copied().unwrap_or(hold.token);
        Hold { key: hold.key.clone(), token }
    }

    fn real_all(&self, held: &[Hold]) -> Vec<Hold> {
        held.iter().map(|hold| self.real(hold)).collect()
    }

    fn lease_duration(&self, lease: Duration) -> Duration {
        if self.bug == Bug::EarlyExpiry { lease * 2 / 3 } else { lease }
    }

    async fn finish_real(
        &self,
        requests: &[FinishRequest],
    ) -> Vec<Result<Finished, Error>> {
        let real = |request: &FinishRequest| FinishRequest {
            hold: self.real(&request.hold),
            ..request.clone()
        };
        let requests: Vec<_> = requests.iter().map(real).collect();
        self.store.finish(&requests).await
    }

    async fn finish_unfenced(
        &self,
        requests: &[FinishRequest],
    ) -> Result<Vec<Finished>, Error> {
        let looks = self.look_at(requests, |request| &request.hold.key).await?;
        let with_current_token = |(request, look): (&FinishRequest, Look)| {
            let mut request = request.clone();
            if let Phase::Processing { token, .. } = look.phase {
                request.hold.token = token;
            }
            request
        };
        let requests: Vec<_> =
            requests.iter().zip(looks).map(with_current_token).collect();
        self.store.finish(&requests).all().await
    }

    async fn finish_dirty_ignored(
        &self,
        requests: &[FinishRequest],
    ) -> Result<Vec<Finished>, Error> {
        let looks = self.look_at(requests, |request| &request.hold.key).await?;
        let mut answers = Vec::with_capacity(requests.len());
        for (request, look) in requests.iter().zip(looks) {
            let is_dirty = matches!(look.phase, Phase::Processing { token, dirty: true, .. }
                if token == request.hold.token);
            if is_dirty {
                answers.push(Finished::Requeued);
            } else {
                answers.extend(
                    self.store.finish(std::slice::from_ref(request)).all().await?,
                );
            }
        }
        Ok(answers)
    }

    async fn finish_again(
        &self,
        requests: &[FinishRequest],
    ) -> Result<Vec<Finished>, Error> {
        let again = |request: &FinishRequest| {
            let mut request = request.clone();
            let done = matches!(request.finish, Finish::Done | Finish::Succeed);
            if done && request.hold.token.0.is_multiple_of(4) {
                request.finish = Finish::Release;
            }
            request
        };
        let requests: Vec<_> = requests.iter().map(again).collect();
        self.store.finish(&requests).all().await
    }
}

impl Store for BuggyStore {
    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
        Box::pin(async move {
            let added = match self.bug {
                Bug::NoDirtyBit => {
                    let skips = |phase: &Phase| matches!(phase, Phase::Processing { .. });
                    self.add_some(adds, skips).await
                }
                Bug::DoNothingAdd => {
                    self.add_some(adds, |phase| *phase != Phase::Absent).await
                }
                Bug::DeadKeysStayDead => {
                    self.add_some(adds, |phase| *phase == Phase::Dead).await
                }
                Bug::BuriedAdd => self.add_unless_last_delivery(adds).await,
                Bug::LatestDelay => self.add_latest(adds).await,
                Bug::BucketPerProcess => self.add_with_own_bucket(adds).await,
                _ => {
                    let added = self.store.add(adds).await;
                    let is_ready = |receipt: &Receipt| receipt.added == Added::Ready;
                    if added.iter().flatten().any(is_ready) {
                        self.ready.notify_one();
                    }
                    return added;
                }
            };
            every(adds.len(), added)
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(async move {
            if self.bug == Bug::ClientClock {
                self.expire_by_own_clock().await?;
            }
            if self.bug == Bug::DeadKeysVanish {
                self.store.drop_dead(&Which::All).await?;
            }
            let lease = self.lease_duration(request.lease);
            let request = LeaseRequest { lease, ..request.clone() };
            let leased = self.store.lease(&request).await?;
            self.remember(&leased);
            if leased.more_in == Some(Duration::ZERO) {
                self.ready.notify_one();
            }
            let base = match self.bug {
                Bug::TokensRestart => self.token_base(&leased),
                Bug::TokensGoBack => now() / SET_BACK_INTERVAL % 2 * SET_BACK,
                _ => return Ok(leased),
            };
            Ok(self.subtract_from_tokens(leased, base))
        })
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        Box::pin(async move {
            let real = self.real_all(held);
            let extending = self.store.extend(owner, &real, self.lease_duration(lease));
            match self.bug {
                Bug::HeartbeatSleeps => self.extend_after_sleep(lease, extending).await,
                _ => extending.await,
            }
        })
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        Box::pin(async move {
            let finished = match self.bug {
                Bug::NoFence => self.finish_unfenced(requests).await,
                Bug::DirtyFinishIgnored => self.finish_dirty_ignored(requests).await,
                Bug::ExtraRun => self.finish_again(requests).await,
                _ => {
                    let finished = self.finish_real(requests).await;
                    if finished.iter().flatten().any(|it| *it == Finished::Requeued) {
                        self.ready.notify_one();
                    }
                    return finished;
                }
            };
            every(requests.len(), finished)
        })
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        Box::pin(async move { self.store.reclaim(owner, &self.real_all(held)).await })
    }

    forward_store!(self => self.store; describe, heartbeat, expire, forget, remove, look,
        take, lane, stats,
        failing, workers, dead, revive, drop_dead, pause, resume);

    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        match self.bug {
            Bug::UnnoticedDelay => Box::pin(self.wait_for_ready_key(at_most)),
            _ => self.store.wait(at_most),
        }
    }
}

/// Lets the heartbeat sleep if its call is abandoned.
struct Oversleeps {
    sleeps_until: Arc<AtomicU64>,
    until: u64,
}

impl Oversleeps {
    fn cancel(mut self) {
        self.until = 0;
    }
}

impl Drop for Oversleeps {
    fn drop(&mut self) {
        self.sleeps_until.fetch_max(self.until, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
