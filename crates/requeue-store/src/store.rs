//! What every store does: whole transitions, each of them atomic.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Add, Dead, Error, Expired, Failing, FinishRequest, Finished, Hold, Key, LeaseRequest,
    Leased, Look, Owner, Receipt, Stats, Which, Worker,
};

/// The answer of a store, once it is there.
///
/// # Cancel safety
///
/// Unless a method says otherwise, dropping the future leaves it open whether the call was
/// carried out; each key of it either was, or was not.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// One queue in an engine: in memory, on disk, on a server.
///
/// Everything that happens to a key is one call here, and the engine carries it out as one
/// step for each key. There is one record for a key, whatever its state:
///
/// | the key is | `add` | `lease` | end of the lease | lease runs out |
/// |---|---|---|---|---|
/// | absent | ready | | refused | |
/// | ready | no change | processing | refused | |
/// | processing | dirty | | absent | ready, or dead |
/// | processing and dirty | no change | | ready | ready, or dead |
/// | dead | delayed, afresh | | refused | |
///
/// A delay is apart from that: a key that is ready or processing may have one besides. When
/// it is over, that is an add. A grant has a [`Token`](crate::Token), and each end or
/// extension names it: one that is not the present one changes nothing and is answered
/// with [`Finished::LeaseLost`].
///
/// # Rules for implementations
///
/// 1. **Atomic for each key.** A batch may be carried out in parts, but each of its keys
///    goes through its whole transition or through none. Answers come in the order of what
///    was asked.
/// 2. **Time is the engine's.** Requests and answers hold durations; every deadline is
///    made and compared in the engine, in whole [microseconds](crate::Moment), or on the
///    [`EngineClock`](crate::EngineClock) the store was opened with.
/// 3. **Due first.** `lease` and `expire` first move what is due: delays that are over, by
///    time, then leases that have run out, by time. `look` and `stats` first move delays
///    that are over. At most a few hundred in each call; the rest follows with the next.
///    What is moved goes to the end of the line. A lease has run out once its deadline *has been reached*. Until somebody has
///    moved it, its holder can still extend or end it: nobody else had the key.
/// 4. **First come, first served.** Ready keys of one priority are handed out in the order
///    in which they became ready (in each partition, if there are several). A dirty key and
///    a released one become ready when their lease ends, at the end of the line.
/// 5. **Tokens grow.** A token is the greater of the last one plus one, and the engine's
///    time in microseconds: even an engine that has lost its last writes, or was restored
///    from a copy, gives none out twice.
/// 6. **The earliest delay wins.** A delay that is added to another keeps the earlier time.
/// 7. **What counts.** `deliveries` grows with each grant, and goes back to 0 when a lease
///    is ended by its holder, except that a release takes its own grant back. `failures`
///    grows with [`Finish::Retry`](requeue::Finish::Retry),
///    [`Finish::RetryAfter`](requeue::Finish::RetryAfter) and
///    [`When::RateLimited`](crate::When::RateLimited), and goes back to 0 with `Succeed`,
///    `RequeueAfter`, `GiveUp` of a dirty key, `forget`, and when a dead key is revived.
///    `RetryAfter` takes no share of the [rate](crate::Rate).
/// 8. **A lease that runs out** makes the key ready, and what made it dirty is covered by
///    that. If the key was granted `max_deliveries` times or more since a lease of it last
///    ended, it is dead instead, and a delay that it had is gone.
/// 9. **An add is kept.** A dead key that is added is first taken from the dead, with its
///    failures and deliveries 0, and then added as asked, but delayed by at least
///    [`revive_after`](crate::Add::revive_after). The answer is
///    [`Added::Delayed`](requeue::Added::Delayed), or
///    [`Added::Ready`](requeue::Added::Ready) if there is no delay at all.
/// 10. **Batches may repeat a key.** The result is that of one after the other.
/// 11. **The most important first.** Ready keys of a higher priority are handed out before
///     those of a lower one. What is planned for a key, that it is ready, dirty or delayed,
///     has one priority: the highest of the adds that planned it, also of those that
///     were answered with `Duplicate`. A ready key whose priority grows goes to the end of
///     its new line. A grant takes the priority with it, and leaves it to a delay that the
///     key has besides. `Retry`, `RetryAfter`, `RequeueAfter`, `Release`, and a lease that runs out plan
///     the key with at least the priority of the grant. A dead key has none; revived, its
///     priority is 0.
/// 12. **Nobody starves.** About one grant in 256 goes to the key that has stood in its line
///     for the longest, whatever its priority; or, of those that are first in their lines,
///     to the one that has been ready for the longest.
/// 13. **A grant tells how long its key was ready**: on the engine's clock, from the call
///     that made it so until the grant, and nothing if the clock stepped back. An add of a
///     key that is ready does not start that again, be it that the priority grows. A delay
///     that is over and a lease that has run out make the key ready when they are moved, and
///     a dirty key becomes so when its lease ends. Of more than four keys in one call, those
///     between two that were ready for about as long as each other, a tenth of it or a
///     millisecond apart, may be told the time of the first.
///
/// [`Finished::LeaseLost`]: crate::Finished::LeaseLost
pub trait Store: Send + Sync + 'static {
    /// What people are told this store is: its kind, its place and its queue, no password.
    fn describe(&self) -> String;

    /// Adds keys.
    ///
    /// | | absent | ready | processing | dirty |
    /// |---|---|---|---|---|
    /// | now | `Ready` | `Duplicate` | `Dirty` | `Duplicate` |
    /// | after a delay | `Delayed`, or `Duplicate` if it has an earlier or equal one | | | |
    ///
    /// If a batch is repeated because its outcome is unknown, each key runs once more at
    /// worst.
    fn add<'a>(&'a self, adds: &'a [Add]) -> Reply<'a, Vec<Receipt>>;

    /// Hands out up to `max` ready keys. It does not wait: see [`wait`](Store::wait). If it
    /// leaves ready keys behind, and be it that none was asked for, whoever waits for one is
    /// woken.
    ///
    /// If the outcome is unknown, keys may be leased to nobody: [`reclaim`](Store::reclaim)
    /// brings them back, or else the end of their leases.
    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Reply<'a, Leased>;

    /// Lets leases last for `lease` from now on: for each, whether it was still held.
    ///
    /// It also notes that the owner is there, which is why an idle one calls it with none.
    fn extend<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Hold],
        lease: Duration,
    ) -> Reply<'a, Vec<bool>>;

    /// Ends leases.
    ///
    /// | | clean | dirty |
    /// |---|---|---|
    /// | `Done`, `Succeed` | `Done` | `Requeued` |
    /// | `Retry`, `RetryAfter`, `RequeueAfter` | `Delayed`; `Requeued` without a delay | `Requeued`, and delayed |
    /// | `GiveUp` | `Buried`; its delay is cancelled | `Requeued` |
    /// | `Release` | `Requeued` | `Requeued` |
    fn finish<'a>(&'a self, requests: &'a [FinishRequest]) -> Reply<'a, Vec<Finished>>;

    /// Releases every lease of `owner` that is not among `held`: how many. For an owner
    /// that has lost the answer to a [`lease`](Store::lease).
    fn reclaim<'a>(&'a self, owner: &'a Owner, held: &'a [Hold]) -> Reply<'a, u64>;

    /// Moves what is due, as `lease` does, and hands nothing out.
    fn expire(&self, max_deliveries: Option<NonZeroU32>) -> Reply<'_, Expired>;

    /// Forgets the failures of keys that are not dead.
    fn forget<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, ()>;

    /// Takes out what is planned for keys: for each, whether anything was.
    ///
    /// A key is ready, delayed and dirty no more. If it is being processed, that goes on.
    /// Its failures are kept, and so is a dead key.
    fn remove<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<bool>>;

    /// Tells what is known of keys.
    fn look<'a>(&'a self, keys: &'a [Key]) -> Reply<'a, Vec<Look>>;

    /// Tells how the queue stands.
    fn stats(&self) -> Reply<'_, Stats>;

    /// Tells of up to `limit` keys that have failed and are not dead, most failures first
    /// as far as that can be had cheaply.
    fn failing(&self, limit: usize) -> Reply<'_, Vec<Failing>>;

    /// Tells who was heard of in the last day or holds a lease.
    fn workers(&self) -> Reply<'_, Vec<Worker>>;

    /// Tells of up to `limit` dead keys, the longest dead first as far as that can be had
    /// cheaply.
    fn dead(&self, limit: usize) -> Reply<'_, Vec<Dead>>;

    /// Makes dead keys ready, afresh: how many.
    fn revive<'a>(&'a self, which: &'a Which) -> Reply<'a, u64>;

    /// Drops dead keys: how many.
    fn drop_dead<'a>(&'a self, which: &'a Which) -> Reply<'a, u64>;

    /// Hands nothing out any more, to nobody, until [`resume`](Store::resume). What is
    /// with a worker goes on.
    fn pause(&self) -> Reply<'_, ()>;

    /// Hands out again.
    fn resume(&self) -> Reply<'_, ()>;

    /// Waits until a key may be ready, at most so long; it may also return for no reason.
    ///
    /// It must not miss a key: one that became ready after an earlier
    /// [`lease`](Store::lease) found nothing makes it return at once. It does not watch the
    /// time: a caller waits no longer than [`more_in`](crate::Leased::more_in).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key. Another waiter of this process is woken in its
    /// stead.
    fn wait(&self, at_most: Duration) -> Reply<'_, ()>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    crate::forward_store!(self => (**self); describe, add, lease, extend, finish, reclaim,
        expire, forget, remove, look, stats, failing, workers, dead, revive, drop_dead,
        pause, resume, wait);
}
