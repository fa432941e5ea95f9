//! The public type, and the trait `Store` on top of the client.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use requeue_store::{
    Add, Dead, EngineClock, Error, Expired, Failing, FinishRequest, Finished, Hold, Key,
    LeaseRequest, Leased, Look, Owner, Receipt, Replies, Reply, Stats, Store,
    TakeRequest, Taken, Which, Worker, every,
};
use tokio_postgres::GenericClient;

use crate::builder::PostgresStoreBuilder;
use crate::client::{Client, selected};
use crate::pool::Pool;
use crate::{inspect, signed};

/// A queue in a PostgreSQL database. Clones share one store.
///
/// The [crate] documentation says what is stored and what is guaranteed.
#[derive(Clone)]
pub struct PostgresStore {
    client: Arc<Client>,
}

impl PostgresStore {
    /// Creates a builder for a store in the database at `url`:
    /// `postgres://user:password@host:port/database`.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(url.into())
    }

    pub(crate) fn new(pool: Arc<Pool>, queue: i32, clock: Option<EngineClock>) -> Self {
        Self { client: Arc::new(Client::new(pool, queue, clock)) }
    }

    /// Adds keys inside a transaction of the caller.
    ///
    /// The keys are added if and when the transaction commits. Each key is locked until
    /// then, even if it is ready already, so that no worker can finish it on the old data.
    /// If several transactions add the same keys, add them in key order or in one call.
    ///
    /// While the transaction is open, it blocks these calls:
    ///
    /// | it has added | blocked until it ends |
    /// |---|---|
    /// | a key | this key: it is not leased; adding, finishing and extending it is [busy](requeue_store::ErrorKind::Busy), and another transaction that adds it waits |
    /// | a key with a shared [rate](requeue_store::Rate) | also adds and retries with a rate, `pause`, `resume`, and the first key with a priority other than 0 |
    /// | the first key with a priority other than 0 | the same, and all adds with such a priority |
    ///
    /// All other keys continue, even those of the same batch.
    ///
    /// The commit does not wake waiting workers. They find the keys within about a second,
    /// or at once if you call [`wake`](Self::wake) after the commit.
    ///
    /// # Errors
    ///
    /// The same as [`Store::add`]. The transaction has then failed and can only be rolled
    /// back.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use requeue_postgres::PostgresStore;
    /// use requeue_store::{Add, Key, When};
    ///
    /// # async fn order(
    /// #     store: &PostgresStore,
    /// #     client: &mut tokio_postgres::Client,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// transaction.execute("insert into orders values (7, 'two chairs')", &[]).await?;
    /// let add = Add::new(Key::new(*b"order-7")?, When::Now);
    /// store.add_in(&transaction, &[add]).await?;
    /// transaction.commit().await?;
    /// store.wake();
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add_in<C: GenericClient + Sync>(
        &self,
        client: &C,
        adds: &[Add],
    ) -> Result<Vec<Receipt>, Error> {
        self.client.add_in(client, adds).await
    }

    /// Wakes waiting workers of the queue on all machines. Call it after the commit of
    /// [`add_in`](Self::add_in). Returns at once.
    pub fn wake(&self) {
        self.client.wakeups.wake_all();
    }
}

impl Store for PostgresStore {
    fn describe(&self) -> String {
        self.client.pool.name().to_owned()
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
        Box::pin(self.client.add(adds))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(self.client.lease(request))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool> {
        Box::pin(self.client.extend(owner, held, lease))
    }

    fn heartbeat<'a>(&'a self, owner: &'a Owner) -> Reply<'a, ()> {
        Box::pin(self.client.heartbeat(owner))
    }

    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished> {
        Box::pin(self.client.finish(requests))
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        Box::pin(self.client.reclaim(owner, held))
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        Box::pin(self.client.expire(max_deliveries))
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, ()> {
        Box::pin(self.client.forget(keys))
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, bool> {
        Box::pin(self.client.remove(keys))
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, Look> {
        Box::pin(async move { every(keys.len(), self.client.look(keys).await) })
    }

    fn take<'a>(&'a self, request: &'a TakeRequest) -> Reply<'a, Taken> {
        Box::pin(self.client.take(request))
    }

    fn stats(&self) -> Reply<'_, Stats> {
        Box::pin(async move {
            let params = params![self.client.queue, self.client.now()];
            let rows = self.client.pool.call_again("stats", &params).await?;
            let row = rows.first();
            row.map_or_else(|| Ok(Stats::default()), inspect::stats)
        })
    }

    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>> {
        let params = params![self.client.queue, signed(limit as u64), self.client.now()];
        Box::pin(self.client.list("failing", params, inspect::failing))
    }

    fn workers(&self) -> Reply<'_, Vec<Worker>> {
        let params = params![self.client.queue, self.client.now()];
        Box::pin(self.client.list("workers", params, inspect::worker))
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        let params = params![self.client.queue, signed(limit as u64), self.client.now()];
        Box::pin(self.client.list("dead", params, inspect::dead))
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(async move {
            let revived = match selected(which) {
                Some(keys) => {
                    let params = params![self.client.queue, keys, self.client.now()];
                    self.client.number("revive", params).await?
                }
                None => self.client.all_dead("revive_some").await?,
            };
            self.client.wake_if_any(revived);
            Ok(revived)
        })
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(async move {
            match selected(which) {
                Some(keys) => {
                    let params = params![self.client.queue, keys];
                    self.client.number("drop_dead", params).await
                }
                None => self.client.all_dead("drop_dead_some").await,
            }
        })
    }

    fn pause(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            let params = params![self.client.queue, true];
            self.client.pool.call_again("set_paused", &params).await.map(drop)
        })
    }

    fn resume(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            let params = params![self.client.queue, false];
            self.client.pool.call_again("set_paused", &params).await?;
            self.client.wakeups.wake_all();
            Ok(())
        })
    }

    /// Notifications arrive on a dedicated connection. If one is lost, this returns after
    /// about a second.
    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            self.client.wakeups.wait(at_most).await;
            Ok(())
        })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("name", &self.client.pool.name())
            .finish_non_exhaustive()
    }
}
