//! The client side of a store: each verb as one call of an SQL function.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use requeue::Added;
use requeue_store::{
    Add, EngineClock, Error, Expired, FinishRequest, Finished, Hold, Key, LeaseRequest,
    Leased, Look, Owner, Receipt, Which, micros_of,
};
use tokio_postgres::{GenericClient, Row};

use crate::add_batch::{AddBatch, duplicate};
use crate::ageing::Ageing;
use crate::finish_batch::FinishBatch;
use crate::lease::{self, Answer};
use crate::number::unsigned;
use crate::pool::Pool;
use crate::session::{Param, call_text, param_ref};
use crate::wake::{SOON, Wakeups};
use crate::watermark::Watermark;
use crate::{error, inspect, number, signed};

/// A queue on a server, and what the client knows about it.
pub(crate) struct Client {
    pub(crate) pool: Arc<Pool>,
    pub(crate) queue: i32,
    clock: Option<EngineClock>,
    watermark: Watermark,
    ageing: Ageing,
    /// Whether the last large batch of adds had only new keys. The next one is then expected
    /// to have only new keys too. A hint, hence the relaxed ordering.
    expects_new: AtomicBool,
    pub(crate) wakeups: Wakeups,
}

impl Client {
    pub(crate) fn new(pool: Arc<Pool>, queue: i32, clock: Option<EngineClock>) -> Self {
        Self {
            wakeups: Wakeups::new(Arc::clone(&pool), queue, clock.clone()),
            watermark: Watermark::default(),
            ageing: Ageing::new(clock.is_some()),
            expects_new: AtomicBool::new(true),
            pool,
            queue,
            clock,
        }
    }

    /// The time of the test clock, if there is one.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| signed(clock.now().micros()))
    }

    /// Calls a function that returns one row.
    async fn one(&self, name: &'static str, params: Vec<Param>) -> Result<Row, Error> {
        self.pool.call_one(name, &params).await
    }

    /// Calls a function that changes nothing, and reads each row.
    pub(crate) async fn list<T>(
        &self,
        name: &'static str,
        params: Vec<Param>,
        read: fn(&Row) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.pool.call_again(name, &params).await?.iter().map(read).collect()
    }

    /// Calls a function that returns how many keys it changed.
    pub(crate) async fn number(
        &self,
        name: &'static str,
        params: Vec<Param>,
    ) -> Result<u64, Error> {
        let row = self.one(name, params).await?;
        let number = row.try_get(0).map_err(|error| self.pool.unreadable(name, error))?;
        Ok(unsigned(number))
    }

    /// Adds keys through a connection of the caller.
    pub(crate) async fn add_in<C: GenericClient + Sync>(
        &self,
        client: &C,
        adds: &[Add],
    ) -> Result<Vec<Receipt>, Error> {
        let schema = self.pool.options().schema.quoted();
        let mut receipts = vec![duplicate(Duration::ZERO); adds.len()];
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        while let Some(batch) = AddBatch::take(adds, &mut rest) {
            // Expecting new keys takes a subtransaction. The server gets slow if a
            // transaction has more than 64.
            let (name, params) = batch.call(self.queue, self.now(), false);
            let params: Vec<_> = params.iter().map(param_ref).collect();
            let text = call_text(schema, name, params.len());
            let row = client.query_one(&text, &params).await;
            row.and_then(|row| batch.read(&row, &mut receipts, &mut rest))
                .map_err(|cause| error::of_call(cause, name, self.pool.name()))?;
        }
        Ok(receipts)
    }

    pub(crate) async fn add(&self, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
        let mut receipts = vec![duplicate(Duration::ZERO); adds.len()];
        let mut unnotified = false;
        let added = self.add_batches(adds, &mut receipts, &mut unnotified).await;
        // Even if a later batch failed: adding these keys again changes nothing, and wakes
        // no worker.
        match receipts.iter().any(is_soon) {
            true if unnotified => self.wakeups.wake_all(),
            true => self.wakeups.wake_local(),
            false => {}
        }
        added.map(|()| receipts)
    }

    /// Adds all keys in as few statements as possible. Sets `unnotified` if some were added
    /// without a notification.
    async fn add_batches(
        &self,
        adds: &[Add],
        receipts: &mut [Receipt],
        unnotified: &mut bool,
    ) -> Result<(), Error> {
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        while let Some(batch) = AddBatch::take(adds, &mut rest) {
            let guesses = batch.is_worth_guessing();
            let expect_new = guesses && self.expects_new.load(Ordering::Relaxed);
            let (mut name, params) = batch.call(self.queue, self.now(), expect_new);
            let waking = batch.has_given_delays() && self.wakeups.try_take_turn();
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
                self.wakeups.record_turn(row.try_get("notified").unwrap_or_default());
            }
            *unnotified |= !waking;
        }
        Ok(())
    }

    pub(crate) async fn lease(&self, request: &LeaseRequest) -> Result<Leased, Error> {
        let first = self.lease_once(request).await?;
        if first.look_again {
            return Ok(self.lease_once(request).await?.leased);
        }
        Ok(first.leased)
    }

    async fn lease_once(&self, request: &LeaseRequest) -> Result<Answer, Error> {
        let start = self.watermark.start();
        let now = self.now();
        let wanted = lease::wanted(request) as u64;
        let oldest_first = self.ageing.count(now.map_or(0, unsigned), wanted);
        let params = lease::params(self.queue, request, start, oldest_first, now);
        let row = self.one("lease", params).await?;
        let answer =
            Answer::read(&row).map_err(|error| self.pool.unreadable("lease", error))?;
        self.watermark.record(start, answer.progress);
        match (answer.leaves_some(), answer.moved) {
            (true, true) => self.wakeups.wake_all(),
            (true, false) => self.wakeups.wake_local(),
            (false, _) => {}
        }
        Ok(answer)
    }

    pub(crate) async fn extend(
        &self,
        owner: &Owner,
        held: &[Hold],
        duration: Duration,
    ) -> Result<Vec<bool>, Error> {
        let mut sorted: Vec<_> = held.iter().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, hold)| &hold.key);
        let (ords, sorted_holds): (Vec<i32>, Vec<_>) =
            sorted.into_iter().map(|(place, hold)| (number(place), hold)).unzip();
        let (keys, tokens) = holds(&sorted_holds);
        let owner = owner.as_str().to_owned();
        let duration = signed(micros_of(duration));
        let params = params![self.queue, owner, keys, tokens, ords, duration, self.now()];
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

    pub(crate) async fn finish(
        &self,
        requests: &[FinishRequest],
    ) -> Vec<Result<Finished, Error>> {
        let mut results: Vec<_> =
            requests.iter().map(|_| Ok(Finished::LeaseLost)).collect();
        for batch in FinishBatch::split(requests) {
            batch.run(&self.pool, self.queue, self.now(), &mut results).await;
        }
        let soon = |answer: &Result<Finished, Error>| match answer {
            Ok(Finished::Requeued) => true,
            Ok(Finished::Delayed(delay)) => *delay < SOON,
            _ => false,
        };
        if results.iter().any(soon) {
            self.wakeups.wake_all();
        }
        results
    }

    pub(crate) async fn reclaim(
        &self,
        owner: &Owner,
        held: &[Hold],
    ) -> Result<u64, Error> {
        let (keys, tokens) = holds(&held.iter().collect::<Vec<_>>());
        let owner = owner.as_str().to_owned();
        let params = params![self.queue, owner, keys, tokens, self.now()];
        let reclaimed = self.number("reclaim", params).await?;
        self.wake_if_any(reclaimed);
        Ok(reclaimed)
    }

    pub(crate) async fn expire(
        &self,
        most: Option<NonZeroU32>,
    ) -> Result<Expired, Error> {
        let most = most.map(|most| number(most.get() as usize));
        let row = self.one("expire", params![self.queue, most, self.now()]).await?;
        let expired = inspect::expired(&row)?;
        self.wake_if_any(expired.due + expired.returned);
        Ok(expired)
    }

    pub(crate) async fn remove(&self, keys: &[Key]) -> Result<Vec<bool>, Error> {
        let row = self.one("remove", params![self.queue, sorted(keys)]).await?;
        let removed: Option<Vec<Vec<u8>>> =
            row.try_get(0).map_err(|error| self.pool.unreadable("remove", error))?;
        let mut removed = removed.unwrap_or_default();
        // A key that is given twice is removed once.
        let mut take = |key: &Key| {
            let place = removed.iter().position(|removed| **removed == **key)?;
            Some(removed.swap_remove(place))
        };
        Ok(keys.iter().map(|key| take(key).is_some()).collect())
    }

    pub(crate) async fn look(&self, keys: &[Key]) -> Result<Vec<Look>, Error> {
        let params = params![self.queue, sorted(keys), self.now()];
        let read = |row: &Row| Ok((inspect::key(row)?, inspect::look(row)?));
        let known = self.list("look", params, read).await?;
        let known: HashMap<_, _> = known.into_iter().collect();
        Ok(keys.iter().map(|key| known.get(key).cloned().unwrap_or_default()).collect())
    }

    /// Wakes workers if keys became ready.
    pub(crate) fn wake_if_any(&self, ready: u64) {
        if ready > 0 {
            self.wakeups.wake_all();
        }
    }
}

/// Returns whether a waiting worker must look for this key.
fn is_soon(receipt: &Receipt) -> bool {
    match receipt.added {
        Added::Ready => true,
        Added::Delayed => receipt.delay < SOON,
        Added::Dirty | Added::Duplicate | _ => false,
    }
}

fn holds(held: &[&Hold]) -> (Vec<Vec<u8>>, Vec<i64>) {
    held.iter().map(|hold| (hold.key.to_vec(), signed(hold.token.0))).unzip()
}

/// Returns the keys in order, each once. Locking keys in this order cannot deadlock.
pub(crate) fn sorted(keys: &[Key]) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = keys.iter().map(|key| key.to_vec()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Returns the keys of a selection, `None` for all.
pub(crate) fn selected(which: &Which) -> Option<Vec<Vec<u8>>> {
    if let Which::Keys(keys) = which { Some(sorted(keys)) } else { None }
}
