//! The store: each verb of a queue, as one call of a function in the database.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use requeue::Added;
use requeue_store::{
    Add, Dead, EngineClock, Error, Expired, Failing, FinishRequest, Finished, Hold, Key,
    LeaseRequest, Leased, Look, Owner, Receipt, Reply, Stats, Store, Which, Worker,
    micros_of,
};
use tokio_postgres::{GenericClient, Row};

use crate::add_batch::{AddBatch, duplicate};
use crate::builder::PostgresStoreBuilder;
use crate::finish_batch::FinishBatch;
use crate::grants::{self, Answer};
use crate::low::Low;
use crate::pool::Pool;
use crate::session::{Param, call_text, param_ref};
use crate::share::Share;
use crate::units::unsigned;
use crate::wake::{SOON, Wake};
use crate::{failure, number, people, signed};

/// A queue in a PostgreSQL database. Clones are the same store.
///
/// See the [crate] for what it keeps where, and what it promises.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Arc<Pool>,
    queue: i32,
    clock: Option<EngineClock>,
    low: Low,
    share: Share,
    /// Whether the last large batch of adds had only new keys. The next one then is
    /// expected to have only new keys too.
    expects_new: AtomicBool,
    wake: Wake,
}

impl PostgresStore {
    /// Settings for a store in the database at `url`,
    /// `postgres://user:password@host:port/database`.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(url.into())
    }

    pub(crate) fn new(pool: Arc<Pool>, queue: i32, clock: Option<EngineClock>) -> Self {
        let wake = Wake::new(Arc::clone(&pool), queue, clock.clone());
        let low = Low::default();
        let share = Share::new(clock.is_some());
        let expects_new = AtomicBool::new(true);
        let inner = Inner { pool, queue, clock, low, share, expects_new, wake };
        Self { inner: Arc::new(inner) }
    }

    /// Adds keys inside a transaction of the caller: they are there if and when that
    /// commits, together with all else that it changed.
    ///
    /// Each key is locked until then, even one that is ready already, so that no worker
    /// can finish it on the old data. Add in the order of keys, or in one call, if several
    /// transactions add the same ones. What an open transaction holds up:
    ///
    /// | it has added | until it ends |
    /// |---|---|
    /// | a key | that key: it is not handed out; adds of it, the end of its lease and extensions are [busy](requeue_store::ErrorKind::Busy), and a transaction that adds it waits |
    /// | with a shared [rate](requeue_store::Rate) | also adds and retries with one, `pause` and `resume`, and the first key of another priority than 0 |
    /// | the first key of the queue with another priority than 0 | the same, and all adds with such a priority |
    ///
    /// All else goes on, in the same batch too.
    ///
    /// Workers that wait are not woken by the commit and find the keys within about a
    /// second. [`wake`](Self::wake) after the commit makes them look at once.
    ///
    /// # Errors
    ///
    /// As [`Store::add`]. The transaction has failed then and can only be rolled back.
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
        let place = self.inner.pool.place();
        let schema = self.inner.pool.terms().schema.quoted();
        let mut receipts = vec![duplicate(Duration::ZERO); adds.len()];
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        while let Some(batch) = AddBatch::take(adds, &mut rest) {
            // To expect new keys takes a subtransaction, and the server keeps only 64 of
            // those of a transaction at hand.
            let (name, params) = batch.call(self.inner.queue, self.inner.now(), false);
            let params: Vec<_> = params.iter().map(param_ref).collect();
            let text = call_text(schema, name, params.len());
            let row = client.query_one(&text, &params).await;
            row.and_then(|row| batch.read(&row, &mut receipts, &mut rest))
                .map_err(|error| failure::of_call(error, name, place))?;
        }
        Ok(receipts)
    }

    /// Wakes workers of the queue that wait, wherever they are: for after the commit of
    /// [`add_in`](Self::add_in). It does not wait for that.
    pub fn wake(&self) {
        self.inner.wake.everywhere();
    }
}

impl Inner {
    /// The time that the server is told, if it is not its own.
    fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| signed(clock.now().micros()))
    }

    async fn one(&self, name: &'static str, params: Vec<Param>) -> Result<Row, Error> {
        self.pool.call_one(name, &params).await
    }

    /// Calls what only tells, and reads each row.
    async fn list<T>(
        &self,
        name: &'static str,
        params: Vec<Param>,
        read: fn(&Row) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.pool.call_again(name, &params).await?.iter().map(read).collect()
    }

    /// Calls what answers with how many keys it changed.
    async fn number(&self, name: &'static str, params: Vec<Param>) -> Result<u64, Error> {
        let row = self.one(name, params).await?;
        let number = row.try_get(0).map_err(|error| self.pool.unreadable(name, error))?;
        Ok(unsigned(number))
    }

    async fn add(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let mut receipts = vec![duplicate(Duration::ZERO); adds.len()];
        let mut untold = false;
        let added = self.add_batches(adds, &mut receipts, &mut untold).await;
        // Also if the rest failed: who adds these again finds them there, and wakes nobody.
        match receipts.iter().any(is_soon) {
            true if untold => self.wake.everywhere(),
            true => self.wake.here(),
            false => {}
        }
        added.map(|()| receipts)
    }

    /// Adds all, in as few statements as possible. Sets `untold` if keys were added without
    /// a notification.
    async fn add_batches(
        &self,
        adds: &[Add],
        receipts: &mut [Receipt],
        untold: &mut bool,
    ) -> Result<(), Error> {
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        while let Some(batch) = AddBatch::take(adds, &mut rest) {
            let guesses = batch.is_worth_guessing();
            let expect_new = guesses && self.expects_new.load(Ordering::Relaxed);
            let (mut name, params) = batch.call(self.queue, self.now(), expect_new);
            let waking = batch.has_given_delays() && self.wake.take_turn();
            if waking {
                name = "add_and_wake";
            }
            let row = self.one(name, params).await?;
            let were_new = batch
                .read(&row, receipts, &mut rest)
                .map_err(|error| self.pool.unreadable(name, error))?;
            if guesses {
                self.expects_new.store(were_new, Ordering::Relaxed);
            }
            if waking {
                self.wake.told(row.try_get("notified").unwrap_or_default());
            }
            *untold |= !waking;
        }
        Ok(())
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Leased, Error> {
        let first = self.lease_once(request).await?;
        if first.look_again {
            return Ok(self.lease_once(request).await?.leased);
        }
        Ok(first.leased)
    }

    async fn lease_once(&self, request: &LeaseRequest) -> Result<Answer, Error> {
        let aim = self.low.aim();
        let now = self.now();
        let wanted = grants::wanted(request) as u64;
        let longest_first = self.share.take(now.map_or(0, unsigned), wanted);
        let params = grants::params(self.queue, request, aim, longest_first, now);
        let row = self.one("lease", params).await?;
        let answer =
            Answer::read(&row).map_err(|error| self.pool.unreadable("lease", error))?;
        self.low.learn(aim, answer.found);
        match (answer.leaves_some(), answer.moved) {
            (true, true) => self.wake.everywhere(),
            (true, false) => self.wake.here(),
            (false, _) => {}
        }
        Ok(answer)
    }

    async fn extend(
        &self,
        owner: &Owner,
        held: &[Hold],
        lease: Duration,
    ) -> Result<Vec<bool>, Error> {
        let mut sorted: Vec<_> = held.iter().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, hold)| &hold.key);
        let (ords, sorted_holds): (Vec<i32>, Vec<_>) =
            sorted.into_iter().map(|(place, hold)| (number(place), hold)).unzip();
        let (keys, tokens) = holds(&sorted_holds);
        let owner = owner.as_str().to_owned();
        let lease = signed(micros_of(lease));
        let params = params![self.queue, owner, keys, tokens, ords, lease, self.now()];
        let rows = self.pool.call_again("extend", &params).await?;
        let places = rows.first().map(|row| row.try_get::<_, Option<Vec<i32>>>(0));
        let places =
            places.transpose().map_err(|error| self.pool.unreadable("extend", error))?;
        let mut extended = vec![false; held.len()];
        for place in places.flatten().unwrap_or_default() {
            extended[usize::try_from(place).unwrap_or_default()] = true;
        }
        Ok(extended)
    }

    async fn finish(&self, ends: &[FinishRequest]) -> Result<Vec<Finished>, Error> {
        let mut answers = vec![Finished::LeaseLost; ends.len()];
        for batch in FinishBatch::split(ends) {
            let finished =
                batch.run(&self.pool, self.queue, self.now(), &mut answers).await;
            let in_part = answers.iter().any(is_carried_out);
            finished.map_err(|error| if in_part { error.in_part() } else { error })?;
        }
        let soon = |answer: &Finished| match answer {
            Finished::Requeued => true,
            Finished::Delayed(delay) => *delay < SOON,
            Finished::Done
            | Finished::Dead
            | Finished::LeaseLost
            | Finished::Busy
            | _ => false,
        };
        if answers.iter().any(soon) {
            self.wake.everywhere();
        }
        Ok(answers)
    }

    async fn reclaim(&self, owner: &Owner, held: &[Hold]) -> Result<u64, Error> {
        let (keys, tokens) = holds(&held.iter().collect::<Vec<_>>());
        let owner = owner.as_str().to_owned();
        let params = params![self.queue, owner, keys, tokens, self.now()];
        let reclaimed = self.number("reclaim", params).await?;
        self.tell(reclaimed);
        Ok(reclaimed)
    }

    async fn expire(&self, most: Option<NonZeroU32>) -> Result<Expired, Error> {
        let most = most.map(|most| number(most.get() as usize));
        let row = self.one("expire", params![self.queue, most, self.now()]).await?;
        let expired = people::expired(&row)?;
        self.tell(expired.due + expired.returned);
        Ok(expired)
    }

    async fn remove(&self, keys: &[Key]) -> Result<Vec<bool>, Error> {
        let row = self.one("remove", params![self.queue, sorted(keys)]).await?;
        let removed: Option<Vec<Vec<u8>>> =
            row.try_get(0).map_err(|error| self.pool.unreadable("remove", error))?;
        let mut removed = removed.unwrap_or_default();
        // A key that is asked for twice is there the first time only.
        let mut take = |key: &Key| {
            let place = removed.iter().position(|removed| **removed == **key)?;
            Some(removed.swap_remove(place))
        };
        Ok(keys.iter().map(|key| take(key).is_some()).collect())
    }

    async fn look(&self, keys: &[Key]) -> Result<Vec<Look>, Error> {
        let params = params![self.queue, sorted(keys), self.now()];
        let read = |row: &Row| Ok((people::key(row)?, people::look(row)?));
        let known = self.list("look", params, read).await?;
        let known: std::collections::HashMap<_, _> = known.into_iter().collect();
        Ok(keys.iter().map(|key| known.get(key).cloned().unwrap_or_default()).collect())
    }

    /// Wakes others if keys became ready.
    fn tell(&self, ready: u64) {
        if ready > 0 {
            self.wake.everywhere();
        }
    }
}

impl Store for PostgresStore {
    fn describe(&self) -> String {
        self.inner.pool.place().to_owned()
    }

    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>> {
        Box::pin(self.inner.add(adds))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(self.inner.lease(request))
    }

    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>> {
        Box::pin(self.inner.extend(owner, held, lease))
    }

    fn finish<'a>(&'a self, ends: &'a [FinishRequest]) -> Reply<'a, Vec<Finished>> {
        Box::pin(self.inner.finish(ends))
    }

    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64> {
        Box::pin(self.inner.reclaim(owner, held))
    }

    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired> {
        Box::pin(self.inner.expire(max_deliveries))
    }

    fn forget<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, ()> {
        Box::pin(async move {
            let params = params![self.inner.queue, sorted(keys)];
            self.inner.pool.call_again("forget", &params).await.map(drop)
        })
    }

    fn remove<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<bool>> {
        Box::pin(self.inner.remove(keys))
    }

    fn look<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<Look>> {
        Box::pin(self.inner.look(keys))
    }

    fn stats(&self) -> Reply<'_, Stats> {
        Box::pin(async move {
            let params = params![self.inner.queue, self.inner.now()];
            let rows = self.inner.pool.call_again("stats", &params).await?;
            let row = rows.first();
            row.map_or_else(|| Ok(Stats::default()), people::stats)
        })
    }

    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>> {
        let params = params![self.inner.queue, signed(limit as u64), self.inner.now()];
        Box::pin(self.inner.list("failing", params, people::failing))
    }

    fn workers(&self) -> Reply<'_, Vec<Worker>> {
        let params = params![self.inner.queue, self.inner.now()];
        Box::pin(self.inner.list("workers", params, people::worker))
    }

    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>> {
        let params = params![self.inner.queue, signed(limit as u64), self.inner.now()];
        Box::pin(self.inner.list("dead", params, people::dead))
    }

    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(async move {
            let params = params![self.inner.queue, meant(which), self.inner.now()];
            let revived = self.inner.number("revive", params).await?;
            self.inner.tell(revived);
            Ok(revived)
        })
    }

    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64> {
        Box::pin(async move {
            let params = params![self.inner.queue, meant(which)];
            self.inner.number("drop_dead", params).await
        })
    }

    fn pause(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            let params = params![self.inner.queue, true];
            self.inner.pool.call_again("set_paused", &params).await.map(drop)
        })
    }

    fn resume(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            let params = params![self.inner.queue, false];
            self.inner.pool.call_again("set_paused", &params).await?;
            self.inner.wake.everywhere();
            Ok(())
        })
    }

    /// Notifications come on a connection of their own. Should one be lost, this returns
    /// after about a second.
    fn wait(&self, at_most: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            self.inner.wake.wait(at_most).await;
            Ok(())
        })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("place", &self.inner.pool.place())
            .finish_non_exhaustive()
    }
}

/// Whether somebody who waits must look for this key.
fn is_soon(receipt: &Receipt) -> bool {
    match receipt.added {
        Added::Ready => true,
        Added::Delayed => receipt.delay < SOON,
        Added::Dirty | Added::Duplicate | _ => false,
    }
}

fn is_carried_out(answer: &Finished) -> bool {
    !matches!(answer, Finished::LeaseLost | Finished::Busy)
}

fn holds(held: &[&Hold]) -> (Vec<Vec<u8>>, Vec<i64>) {
    held.iter().map(|hold| (hold.key.to_vec(), signed(hold.token.0))).unzip()
}

/// Keys in their order, each once: what is locked in this order cannot deadlock.
fn sorted(keys: &[Key]) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = keys.iter().map(|key| key.to_vec()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn meant(which: &Which) -> Option<Vec<Vec<u8>>> {
    if let Which::Keys(keys) = which { Some(sorted(keys)) } else { None }
}
