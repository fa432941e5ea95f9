//! The store: its methods are in the modules [`add`], [`lease`], [`finish`], [`inspect`] and
//! [`operate`].

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue_store::{
    Add, Dead, Error, Expired, Failing, FinishRequest, Finished, Hold, Key, LeaseRequest,
    Leased, Look, Owner, Receipt, Replies, Reply, Stats, Store, TakeRequest, Taken,
    Token, Which, Worker,
};

use crate::builder::RedisStoreBuilder;
use crate::client::Client;
use crate::durability::{Confirmation, Durability};
use crate::lease::LeasedInPart;
use crate::operate::Exhume;
use crate::partition::partition_of;
use crate::waiters::{WAITERS_LOOK, Waiters};
use crate::{add, finish, inspect, lease, operate, single};

/// A queue on a Redis or Valkey server or cluster.
///
/// Clones are handles of the same store and share its connections. See the [crate](crate)
/// for its promises and requirements.
#[derive(Clone)]
pub struct RedisStore {
    client: Client,
    waiters: Arc<Waiters>,
    /// Chooses the partition from which the next lease takes keys first.
    turn: Arc<AtomicUsize>,
    /// A lease of which a part had an unknown outcome. The next lease fails with it, so that
    /// its caller reclaims keys whose grants did not arrive.
    doubt: Arc<Mutex<Option<Error>>>,
    confirmation: Option<Confirmation>,
    /// The greatest token of any lease of this process. Later tokens are greater, even if a
    /// server lost its last writes and its clock is behind.
    last_token: Arc<AtomicU64>,
}

impl RedisStore {
    /// Returns a builder for a queue at this address.
    ///
    /// | engine | address |
    /// |---|---|
    /// | one server | `redis://user:password@host:port/database` |
    /// | a cluster, by some of its nodes | `redis-cluster://user:password@host:port,host:port` |
    /// | a server behind sentinels | `redis+sentinel://user:password@host:port,host:port/name?db=0` |
    ///
    /// The hosts of a sentinel address are the sentinels, and `name` is that of the primary in
    /// their configuration. User and password are those of the server. If the sentinels have
    /// their own, add `sentinel_user` and `sentinel_password` as parameters.
    ///
    /// With TLS the schemes are `rediss://`, `rediss-cluster://` and `rediss+sentinel://`. The
    /// system must trust the certificate of the server, or `?ca=FILE` names the certificate of
    /// its authority. If the server asks for a client certificate, add `?cert=FILE&key=FILE`.
    /// The files are in PEM format and are read when the queue is opened.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    pub(crate) fn new(client: Client, durability: Durability) -> Self {
        Self {
            waiters: Waiters::new(&client),
            client,
            turn: Arc::default(),
            doubt: Arc::default(),
            confirmation: durability.confirmation(),
            last_token: Arc::default(),
        }
    }

    async fn lease_keys(&self, request: &LeaseRequest) -> Result<Leased, Error> {
        let doubt = self.doubt().take();
        doubt.map_or(Ok(()), Err)?;
        let leased = match self.lease_single(request).await? {
            Some(leased) => leased,
            None => self.lease_batch(request).await?,
        };
        let last_token = leased.grants.iter().map(|grant| grant.token.0).max();
        self.last_token.fetch_max(last_token.unwrap_or_default(), Ordering::Relaxed);
        Ok(leased)
    }

    async fn lease_batch(&self, request: &LeaseRequest) -> Result<Leased, Error> {
        let has_waited = self.waiters.take_waited();
        let last_token = self.last_token();
        match lease::lease(&self.client, &self.turn, request, last_token).await {
            Ok(LeasedInPart { leased, doubt }) => {
                *self.doubt() = doubt;
                Ok(leased)
            }
            Err(error) => {
                self.waiters.restore_waited(has_waited);
                Err(error)
            }
        }
    }

    fn last_token(&self) -> Token {
        Token(self.last_token.load(Ordering::Relaxed))
    }

    fn doubt(&self) -> MutexGuard<'_, Option<Error>> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries the short script, which does not look at the keys that are left.
    ///
    /// It cannot be used if these may have to wake another waiter: after a wait, or if this
    /// lease expires before the waiters look by themselves.
    async fn lease_single(
        &self,
        request: &LeaseRequest,
    ) -> Result<Option<Leased>, Error> {
        let is_single = request.max == 1 && self.client.partitions() == 1;
        if !is_single || request.lease < WAITERS_LOOK || self.waiters.has_waited() {
            return Ok(None);
        }
        single::lease(&self.client, request, self.last_token()).await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.describe()).finish()
    }
}

impl Store for RedisStore {
    fn describe(&self) -> String {
        format!("{}, queue {}", self.client.engine.name(), self.client.queue)
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
        let sending = self.client.engine.sending(self.confirmation);
        Box::pin(add::add(&self.client, adds, sending))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(self.lease_keys(request))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        Box::pin(async move {
            if held.is_empty() {
                // A failed heartbeat changes no lease.
                drop(self.heartbeat(owner).await);
                return Vec::new();
            }
            lease::extend(&self.client, owner, held, lease).await
        })
    }

    fn heartbeat<'a>(&'a self, owner: &'a Owner) -> Reply<'a, ()> {
        Box::pin(lease::heartbeat(&self.client, &self.turn, owner))
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        Box::pin(finish::finish(&self.client, requests))
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        Box::pin(lease::reclaim(&self.client, owner, held))
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        Box::pin(lease::expire(&self.client, max_deliveries))
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, ()> {
        Box::pin(operate::forget(&self.client, keys))
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, bool> {
        Box::pin(operate::remove(&self.client, keys))
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, Look> {
        Box::pin(inspect::look(&self.client, keys))
    }

    fn take<'a>(&'a self, request: &'a TakeRequest) -> Reply<'a, Taken> {
        Box::pin(operate::take(&self.client, request))
    }

    /// In a cluster, each partition may be on its own node.
    fn lane(&self, key: &Key) -> usize {
        if !self.client.engine.is_cluster() {
            return 0;
        }
        partition_of(key, self.client.partitions())
    }

    fn stats(&self) -> Reply<'_, Stats> {
        Box::pin(inspect::stats(&self.client))
    }

    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>> {
        Box::pin(inspect::failing(&self.client, limit))
    }

    fn workers(&self) -> Reply<'_, Vec<Worker>> {
        Box::pin(inspect::workers(&self.client))
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        Box::pin(inspect::dead(&self.client, limit))
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(operate::exhume(&self.client, which, Exhume::Revive))
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(operate::exhume(&self.client, which, Exhume::Drop))
    }

    fn pause(&self) -> Reply<'_, ()> {
        Box::pin(operate::set_paused(&self.client, true))
    }

    fn resume(&self) -> Reply<'_, ()> {
        Box::pin(operate::set_paused(&self.client, false))
    }

    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        Box::pin(self.waiters.wait(at_most))
    }
}
