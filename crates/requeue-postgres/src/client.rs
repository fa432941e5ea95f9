//! The client side of a store: each verb as one call of an SQL function.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use requeue::Added;
use requeue_store::{
    Add, EngineClock, Error, ErrorKind, Expired, FinishRequest, Finished, Hold, Key,
    LeaseRequest, Leased, Look, Owner, Receipt, TakeRequest, Taken, Which, every,
    micros_of,
};
use tokio_postgres::{GenericClient, Row};

use crate::add_batch::{AddBatch, duplicate};
use crate::ageing::Ageing;
use crate::finish_batch::FinishBatch;
use crate::lease::{self, Answer};
use crate::number::unsigned;
use crate::param::{Param, typed};
use crate::pool::{IfLocked, Pool, Use};
use crate::session::call_text;
use crate::wake::Wakeups;
use crate::watermark::Watermark;
use crate::{error, inspect, number, signed};

/// How many dead keys one call changes.
const DEAD_AT_ONCE: i32 = 1000;

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

    /// Calls a function for all keys that are dead now, a few at a time. Returns how many
    /// there were.
    pub(crate) async fn all_dead(&self, name: &'static str) -> Result<u64, Error> {
        let (mut all, mut until) = (0, None::<i64>);
        loop {
            let params = params![self.queue, DEAD_AT_ONCE, self.now(), until];
            let row = self.one(name, params).await?;
            let read = row.try_get(0).and_then(|until| Ok((until, row.try_get(1)?)));
            let (seen_until, number): (i64, i64) =
                read.map_err(|error| self.pool.unreadable(name, error))?;
            all += unsigned(number);
            if number < i64::from(DEAD_AT_ONCE) {
                return Ok(all);
            }
            until = Some(seen_until);
        }
    }

    /// Adds keys through a connection of the caller.
    pub(crate) async fn add_in<C: GenericClient + Sync>(
        &self,
        client: &C,
        adds: &[Add],
    ) -> Result<Vec<Receipt>, Error> {
        let schema = self.pool.options().schema.quoted();
        let mut receipts = vec![Ok(duplicate(Duration::ZERO)); adds.len()];
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        while let Some(batch) = AddBatch::take(adds, &mut rest) {
            // Expecting new keys takes a subtransaction. The server gets slow if a
            // transaction has more than 64.
            let (name, params) = batch.call(self.queue, self.now(), false);
            let text = call_text(schema, name, params.len());
            // Not prepared: the connection may be one of a pooler.
            let row = client.query_typed_one(&text, &typed(&params)).await;
            row.and_then(|row| batch.read(&row, &mut receipts, &mut rest))
                .map_err(|cause| error::of_call(cause, name, self.pool.name()))?;
        }
        receipts.into_iter().collect()
    }

    pub(crate) async fn add(&self, adds: &[Add]) -> Vec<Result<Receipt, Error>> {
        let mut receipts = vec![Ok(duplicate(Duration::ZERO)); adds.len()];
        let mut rest: VecDeque<_> = (0..adds.len()).collect();
        let mut unnotified = false;
        while let Some(batch) = AddBatch::take(adds, &mut rest) {
            let added = self.add_batch(&batch, &mut receipts, &mut rest).await;
            match added {
                Ok(notified) => unnotified |= !notified,
                Err(error) => batch.fail(&error, &mut receipts),
            }
        }
        self.wake_for(&receipts, unnotified);
        receipts
    }

    /// Adds the keys of one statement. Returns whether the statement notified workers, if
    /// there was a reason to.
    async fn add_batch(
        &self,
        batch: &AddBatch<'_>,
        receipts: &mut [Result<Receipt, Error>],
        rest: &mut VecDeque<usize>,
    ) -> Result<bool, Error> {
        let guesses = batch.is_worth_guessing();
        let expect_new = guesses && self.expects_new.load(Ordering::Relaxed);
        let (mut name, params) = batch.call(self.queue, self.now(), expect_new);
        let waking = batch.has_given_delays() && self.wakeups.try_take_turn();
        if waking {
            name = "add_and_wake";
        }
        let unreadable = |error| self.pool.unreadable(name, error);
        let busy = match self.pool.call_unlocked(name, &params).await {
            Ok(row) => {
                let were_new = batch.read(&row, receipts, rest).map_err(unreadable)?;
                if guesses {
                    self.expects_new.store(were_new, Ordering::Relaxed);
                }
                return Ok(waking);
            }
            Err(error) if error.kind() == ErrorKind::Busy && !batch.is_single() => error,
            Err(error) => return Err(error),
        };
        let (name, params) = batch.call_each(self.queue, self.now());
        let row = self.pool.call_unlocked(name, &params).await?;
        batch.read_each(&row, &busy, receipts, rest).map_err(unreadable)?;
        Ok(false)
    }

    /// Wakes workers after adds.
    fn wake_for(&self, receipts: &[Result<Receipt, Error>], unnotified: bool) {
        let has = |added| receipts.iter().flatten().any(|receipt| receipt.added == added);
        let (ready, delayed) = (has(Added::Ready), has(Added::Delayed));
        if delayed {
            self.wakeups.wake_each_local();
        }
        match ready || delayed {
            true if unnotified => self.wakeups.wake_all(),
            true => self.wakeups.wake_local(),
            false => {}
        }
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

    /// Extends leases, on the connection for heartbeats.
    pub(crate) async fn extend(
        &self,
        owner: &Owner,
        held: &[Hold],
        duration: Duration,
    ) -> Vec<Result<bool, Error>> {
        let mut sorted: Vec<_> = held.iter().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, hold)| &hold.key);
        let (ords, sorted_holds): (Vec<i32>, Vec<_>) =
            sorted.into_iter().map(|(place, hold)| (number(place), hold)).unzip();
        let (keys, tokens) = holds(&sorted_holds);
        let owner = owner.as_str().to_owned();
        let duration = signed(micros_of(duration));
        let params = params![self.queue, owner, keys, tokens, ords, duration, self.now()];
        let answer = match self.heartbeat_call("extend", &params).await {
            Ok(row) => self.read_extended(&row, "extend", None, held.len()),
            Err(busy) if busy.kind() == ErrorKind::Busy && held.len() > 1 => {
                let row = self.heartbeat_call("extend_each", &params).await;
                let read =
                    |row| self.read_extended(&row, "extended", Some(&busy), held.len());
                row.and_then(read)
            }
            Err(error) => Err(error),
        };
        answer.unwrap_or_else(|error| every(held.len(), Err(error)))
    }

    fn read_extended(
        &self,
        row: &Row,
        column: &str,
        busy: Option<&Error>,
        number: usize,
    ) -> Result<Vec<Result<bool, Error>>, Error> {
        let places = |column| {
            let places: Option<Vec<i32>> = row
                .try_get(column)
                .map_err(|error| self.pool.unreadable(column, error))?;
            let places = places.unwrap_or_default().into_iter();
            Ok::<_, Error>(places.map(|place| usize::try_from(place).unwrap_or_default()))
        };
        let mut extended = vec![Ok(false); number];
        for place in places(column)? {
            extended[place] = Ok(true);
        }
        if let Some(busy) = busy {
            for place in places("busy")? {
                extended[place] = Err(busy.clone());
            }
        }
        Ok(extended)
    }

    pub(crate) async fn heartbeat(&self, owner: &Owner) -> Result<(), Error> {
        let params = params![self.queue, owner.as_str().to_owned(), self.now()];
        self.heartbeat_call("heartbeat", &params).await.map(drop)
    }

    /// Calls an idempotent function for a heartbeat, once more if the connection is lost.
    async fn heartbeat_call(
        &self,
        name: &'static str,
        params: &[Param],
    ) -> Result<Row, Error> {
        let call = || self.pool.call_as(Use::Heartbeat, IfLocked::Fail, name, params);
        let rows = match call().await {
            Err(error) if error.kind() == ErrorKind::Unknown => call().await,
            rows => rows,
        };
        self.pool.one(rows?, name)
    }

    pub(crate) async fn finish(
        &self,
        requests: &[FinishRequest],
    ) -> Vec<Result<Finished, Error>> {
        let mut results = vec![Ok(Finished::LeaseLost); requests.len()];
        for batch in FinishBatch::split(requests) {
            let run = batch.run(&self.pool, self.queue, self.now(), &mut results).await;
            if let Err(error) = run {
                batch.fail(&error, &mut results);
            }
        }
        let is = |matches: fn(&Finished) -> bool| results.iter().flatten().any(matches);
        let delayed = is(|answer| matches!(answer, Finished::Delayed(_)));
        if delayed {
            self.wakeups.wake_each_local();
        }
        if delayed || is(|answer| *answer == Finished::Requeued) {
            self.wakeups.wake_all();
        }
        results
    }

    /// Takes tokens of a shared limiter.
    pub(crate) async fn take(&self, request: &TakeRequest) -> Result<Taken, Error> {
        let micros = |time| signed(micros_of(time));
        let (pause, max_wait) =
            (micros(request.rate.interval).max(1), micros(request.max_wait));
        let (burst, n) = (i64::from(request.rate.burst.get()), i64::from(request.n));
        let limiter = request.limiter.replace('\0', "?");
        let params = params![self.queue, limiter, pause, burst, n, max_wait, self.now()];
        let row = self.one("take", params).await?;
        let read = row.try_get(0).and_then(|granted| Ok((granted, row.try_get(1)?)));
        let (granted, wait): (bool, i64) =
            read.map_err(|error| self.pool.unreadable("take", error))?;
        Ok(if granted {
            Taken::Granted { after: crate::duration(wait) }
        } else {
            Taken::Refused { retry_in: crate::duration(wait - max_wait) }
        })
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

    pub(crate) async fn remove(&self, keys: &[Key]) -> Vec<Result<bool, Error>> {
        self.key_by_key(keys, "remove", |row, keys| {
            let removed: Option<Vec<Vec<u8>>> = row.try_get(0)?;
            let mut removed = removed.unwrap_or_default();
            // A key that is given twice is removed once.
            let mut take = |key: &Key| {
                let place = removed.iter().position(|removed| **removed == **key)?;
                Some(removed.swap_remove(place))
            };
            Ok(keys.iter().map(|key| take(key).is_some()).collect())
        })
        .await
    }

    pub(crate) async fn forget(&self, keys: &[Key]) -> Vec<Result<(), Error>> {
        self.key_by_key(keys, "forget", |_, keys| Ok(vec![(); keys.len()])).await
    }

    /// Calls a function for all keys, and if one of them is locked for each by itself. A
    /// single key is waited for until the time limit of the call.
    async fn key_by_key<T>(
        &self,
        keys: &[Key],
        name: &'static str,
        read: fn(&Row, &[Key]) -> Result<Vec<T>, tokio_postgres::Error>,
    ) -> Vec<Result<T, Error>> {
        let call = async |keys: &[Key], if_locked| {
            let params = params![self.queue, sorted(keys)];
            let rows = self.pool.call_as(Use::Calls, if_locked, name, &params).await?;
            let row = self.pool.one(rows, name)?;
            read(&row, keys).map_err(|error| self.pool.unreadable(name, error))
        };
        if let [_] = keys {
            return every(1, call(keys, IfLocked::Repeat).await);
        }
        let whole = call(keys, IfLocked::Fail).await;
        if !whole.as_ref().is_err_and(|error| error.kind() == ErrorKind::Busy) {
            return every(keys.len(), whole);
        }
        let mut results = Vec::new();
        for key in keys {
            let one = call(std::slice::from_ref(key), IfLocked::Fail).await;
            results.extend(every(1, one));
        }
        results
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
