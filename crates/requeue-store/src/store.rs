//! The trait that every store implements.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Add, Dead, Error, Expired, Failing, FinishRequest, Finished, Hold, Key, LeaseRequest,
    Leased, Look, Owner, Receipt, Stats, TakeRequest, Taken, Which, Worker,
};

/// The future of a store's answer.
///
/// # Cancel safety
///
/// Unless a method says otherwise, a call may or may not be executed if its future is
/// dropped. Each key of the call makes its whole transition or none.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The future of a batch: one result for each request, in their order.
///
/// A locked key, a moved slot or a dead node gives an error for its own keys only.
/// [`RepliesExt::all`] returns the first error instead.
///
/// # Cancel safety
///
/// As [`Reply`].
pub type Replies<'a, T> =
    Pin<Box<dyn Future<Output = Vec<Result<T, Error>>> + Send + 'a>>;

/// Waits for a batch as a whole.
///
/// # Examples
///
/// ```
/// use requeue_store::{Add, Error, Key, MemoryStore, RepliesExt, Store, When};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// let adds = [Add::new(Key::new(*b"a")?, When::Now), Add::new(Key::new(*b"b")?, When::Now)];
/// let receipts = store.add(&adds).all().await?;
/// assert_eq!(receipts.len(), 2);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub trait RepliesExt<'a, T> {
    /// Returns all answers, or the first error. The other requests are executed as well.
    fn all(self) -> Reply<'a, Vec<T>>;
}

impl<'a, T: Send + 'a> RepliesExt<'a, T> for Replies<'a, T> {
    fn all(self) -> Reply<'a, Vec<T>> {
        Box::pin(async move { self.await.into_iter().collect() })
    }
}

/// Turns the result of a whole batch of `n` requests into a result for each.
///
/// For stores that execute a batch, or a part of it, in one step.
///
/// # Examples
///
/// ```
/// use requeue_store::{Error, ErrorKind, every};
///
/// let failed: Result<Vec<bool>, _> = Err(Error::new(ErrorKind::Unavailable, "no server"));
/// assert_eq!(every(3, failed).len(), 3);
/// assert!(every(2, Ok(vec![true, false])).iter().all(Result::is_ok));
/// ```
pub fn every<T>(n: usize, whole: Result<Vec<T>, Error>) -> Vec<Result<T, Error>> {
    match whole {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        Err(error) => (0..n).map(|_| Err(error.clone())).collect(),
    }
}

/// One queue in an engine: in memory, on disk or on a server.
///
/// Programs use a [`SharedQueue`](crate::SharedQueue). This trait is the contract between
/// it and an engine, this page is the specification, and `conformance_tests!` checks it.
///
/// # States
///
/// Every key has at most one record, and every call is one transition of that record:
///
/// | state | [`add`] | [`lease`] | [`finish`] | the lease expires |
/// |---|---|---|---|---|
/// | absent | ready | – | refused | – |
/// | ready | no change | processing | refused | – |
/// | processing | dirty | – | absent, unless the [finish] requeues it | ready or dead |
/// | dirty: processing, and added again | no change | – | ready | ready or delayed |
/// | dead | delayed | – | refused | – |
///
/// A delay is independent of the state: a ready, processing or dirty key can also be
/// delayed. When the delay ends, the key is added.
///
/// Each lease has a [token](crate::Token). A call that extends or finishes a lease names
/// the token. If the token is not the current one, the call is refused: it changes nothing,
/// and the answer is [`Finished::LeaseLost`](crate::Finished::LeaseLost) or `false`.
///
/// # Rules
///
/// 1. **Each key is atomic.** A batch may be executed in parts, but each of its keys makes
///    its whole transition or none. There is one result for each request, in their order.
///    A key that fails affects no other key, and neither fails nor delays one on another
///    server.
/// 2. **The engine's clock decides.** Requests and answers contain durations. The engine
///    computes and compares all deadlines, in whole microseconds, rounded up. Tests replace
///    its clock with an [`EngineClock`](crate::EngineClock).
/// 3. **Due keys move lazily.** `lease` and `expire` start by moving due keys: first the
///    keys whose delay has ended, then the keys whose lease has expired, each ordered by
///    time. `look` and `stats` move only delayed keys. One call moves at most a few hundred
///    keys, and the next call continues. A moved key goes to the tail. A lease expires when
///    the clock *reaches* its deadline. Until a call moves the key, its holder can still
///    extend or finish the lease, because no other worker has the key.
/// 4. **First in, first out.** Ready keys with the same priority are leased in the order in
///    which they became ready, in each partition if there are several. Dirty and released
///    keys become ready at the end of their lease, at the tail.
/// 5. **Tokens increase.** A token is greater than the last token of the queue, in each
///    partition if there are several, and not less than the engine's time in microseconds.
///    So the tokens of a key increase whatever the engine's clock does. An engine that lost its last writes, for
///    example in a failover to a replica or by restoring a backup, continues from the last
///    token that it still has, or from its time if that is greater. A token that it no
///    longer has is exceeded if its clock is not behind the clock that issued the token by
///    more than the time since then.
/// 6. **The earliest delay wins.** A delay that is added to a delayed key keeps the earlier
///    of the two times.
/// 7. **Counters.** `deliveries` grows with each lease. A finish resets it to 0, except
///    `Release`, which only takes its own delivery back. `failures` grows with `Retry`,
///    `RetryAfter` and [`When::RateLimited`](crate::When::RateLimited). It is reset to 0 by
///    `Succeed`, `RequeueAfter`, `GiveUp` of a dirty key, `forget`, and the revival of a
///    dead key. `Retry` and `RateLimited` take a token of the [rate](crate::Rate) if their
///    backoff has one; `RetryAfter` takes none.
/// 8. **Expiry.** A key whose lease expires becomes ready. If it was dirty, one run covers
///    both. If the key has been delivered `max_deliveries` times or more since a holder
///    last finished it, it becomes dead instead, and its delay is cancelled. If such a key
///    is dirty, its add [revives](crate::Add::revive_after) it at once: failures and
///    deliveries are reset, a delay is cancelled, and the key is delayed by the longest
///    delay of the default [`Backoff`](crate::Backoff), 1000 seconds. It keeps the priority
///    that it has as a pending key, without that of the lease. [`Expired`](crate::Expired)
///    counts it in `returned`.
/// 9. **An add is never lost.** An add of a dead key revives it: the store resets the
///    failures and deliveries and executes the add with a delay of at least
///    [`revive_after`](crate::Add::revive_after). The answer is
///    [`Added::Delayed`](requeue::Added::Delayed), or
///    [`Added::Ready`](requeue::Added::Ready) if that delay is zero.
/// 10. **Batches may repeat a key.** The result is that of executing the requests one after
///     the other.
/// 11. **Higher priorities first.** Ready keys of a higher priority are leased before those
///     of a lower one. A *pending* key, which is one that is ready, dirty or delayed, has
///     one priority: the highest of the adds since it became pending, including those
///     answered with `Duplicate`. A ready key whose priority is raised goes to the tail of
///     its new priority. A lease takes the priority with it, and a delay that the key also
///     has keeps it. `Retry`, `RetryAfter`, `RequeueAfter`, `Release` and expiry make the
///     key pending with at least the priority of the lease. A dead key has no priority, and
///     a revived key has priority 0.
/// 12. **No key starves.** About one lease in 256 ignores priorities. It goes to the key
///     that has been longest in the line of its priority, or to the key that has been ready
///     longest among the heads of these lines.
/// 13. **A lease reports how long its key was ready**, by the engine's clock: from the call
///     that made it ready to the lease, or zero if the clock has stepped back. An add of a
///     ready key does not restart that time, even if it raises the priority. A due key
///     becomes ready when it is moved, and a dirty key when its lease ends.
/// 14. **A clock that was wrong does not block a rate.** A shared rate, of retries or of a
///     limiter, is a theoretical arrival time and the time at which it was computed. If the
///     clock is before the latter, it has been set back, and the arrival time moves back by
///     the difference: no time has passed.
///
/// [`add`]: Store::add
/// [`lease`]: Store::lease
/// [`finish`]: Store::finish
/// [finish]: Store::finish
pub trait Store: Send + Sync + 'static {
    /// Describes the store for people: its kind, its location and its queue, without a
    /// password.
    fn describe(&self) -> String;

    /// Adds keys.
    ///
    /// | [`When`](crate::When) | absent | ready | processing | dirty |
    /// |---|---|---|---|---|
    /// | `Now` | `Ready` | `Duplicate` | `Dirty` | `Duplicate` |
    /// | with a delay | `Delayed`, or `Duplicate` if the key has an earlier or equal delay | the same | the same | the same |
    ///
    /// An add can be repeated if its outcome is unknown: at worst the key runs once more.
    fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt>;

    /// Leases up to `max` ready keys. It does not wait; see [`wait`](Store::wait).
    ///
    /// If ready keys remain, one waiter is woken, even if the request asked for no keys.
    ///
    /// A store with several servers returns the keys of the servers that answered. It fails
    /// only if none did.
    ///
    /// If the outcome is unknown, keys may be leased although no worker received them.
    /// [`reclaim`](Store::reclaim) releases them; otherwise their leases expire.
    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased>;

    /// Extends leases, so that they last for `lease` from now. Returns for each whether it
    /// was still held.
    ///
    /// The call also records that the owner is alive, as [`heartbeat`](Store::heartbeat)
    /// does.
    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Replies<'a, bool>;

    /// Records that an owner without leases is alive.
    fn heartbeat<'a>(&'a self, owner: &'a Owner) -> Reply<'a, ()>;

    /// Ends leases.
    ///
    /// | [`Finish`](requeue::Finish) | the key is clean | the key is dirty |
    /// |---|---|---|
    /// | `Succeed`, `Done` | `Done` | `Requeued` |
    /// | `Retry`, `RetryAfter`, `RequeueAfter` | `Delayed`, or `Requeued` if the delay is zero | `Requeued`, and also delayed |
    /// | `GiveUp` | `Dead`; a delay is cancelled | `Requeued` |
    /// | `Release` | `Requeued` | `Requeued` |
    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Replies<'a, Finished>;

    /// Releases every lease of `owner` that is not in `held`. Returns the number of released
    /// leases.
    ///
    /// For an owner that lost the answer to a [`lease`](Store::lease) call.
    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64>;

    /// Moves due keys, as `lease` does, and leases nothing.
    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired>;

    /// Resets the failures of keys that are not dead.
    fn forget<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, ()>;

    /// Cancels pending keys: they are no longer ready, delayed or dirty. Returns for each
    /// whether it was pending.
    ///
    /// Leases continue, failures are kept, and dead keys stay dead.
    fn remove<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, bool>;

    /// Returns the state of keys.
    fn look<'a>(&'a self, keys: &'a [Key]) -> Replies<'a, Look>;

    /// Takes tokens of a limiter that all users of the store share.
    ///
    /// A limiter is one theoretical arrival time (GCRA) for each name, separate from the
    /// [rate](crate::Backoff::rate) of retries; see rule 14. With `d` the time by which it
    /// is ahead of the engine's clock, at least zero, `n` tokens are available after
    /// `d + n × interval - burst × interval`, at least zero. If that is at most
    /// [`max_wait`](TakeRequest::max_wait), the arrival time becomes the engine's time plus
    /// `d + n × interval`. Otherwise nothing is changed.
    ///
    /// If the outcome is unknown, the tokens may have been taken.
    fn take<'a>(&'a self, request: &'a TakeRequest) -> Reply<'a, Taken>;

    /// Returns a number that is equal for keys on the same server.
    ///
    /// A [`SharedQueue`](crate::SharedQueue) sends the keys of different lanes in separate
    /// calls, so that a server that does not answer delays only its own keys. A store with
    /// one server, such as the default, returns zero. The numbers should be small and must
    /// not change while the store is open.
    fn lane(&self, key: &Key) -> usize {
        let _ = key;
        0
    }

    /// Returns how many keys are in each state. The cost does not depend on their number.
    fn stats(&self) -> Reply<'_, Stats>;

    /// Lists up to `limit` keys that have failed and are not dead.
    ///
    /// Keys with more failures come first, if the store can sort them cheaply.
    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>>;

    /// Lists the owners that made a call in the last day or hold a lease.
    fn workers(&self) -> Reply<'_, Vec<Worker>>;

    /// Lists up to `limit` dead keys.
    ///
    /// Keys that died earlier come first, if the store can sort them cheaply.
    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>>;

    /// Makes dead keys ready, without failures. Returns how many there were.
    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64>;

    /// Deletes dead keys. Returns how many there were.
    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64>;

    /// Stops leasing keys to all owners until [`resume`](Store::resume). Held leases
    /// continue.
    fn pause(&self) -> Reply<'_, ()>;

    /// Leases keys again after a [`pause`](Store::pause).
    fn resume(&self) -> Reply<'_, ()>;

    /// Waits until a key may be ready, or a delay may end earlier than known, at most for
    /// `at_most`. It may return spuriously.
    ///
    /// It must not miss a key: if a key became ready after an earlier
    /// [`lease`](Store::lease) found none, it returns at once. The same holds if the
    /// earliest time at which a delay ends has moved forward since then, because a delay
    /// started or was shortened; this wakes every waiter. The caller then calls `lease`, which returns a new
    /// [`more_in`](crate::Leased::more_in). It need not notice due keys: callers wait no
    /// longer than `more_in`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key. Another waiter of this process is woken instead.
    fn wait(&self, at_most: Duration) -> Reply<'_, ()>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    crate::forward_store!(self => (**self); describe, add, lease, extend, heartbeat, finish,
        reclaim, expire, forget, remove, look, take, lane, stats, failing, workers, dead,
        revive, drop_dead, pause, resume, wait);
}
