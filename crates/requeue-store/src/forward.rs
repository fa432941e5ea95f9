//! Forwarding, for stores that wrap another store.

/// Implements methods of [`Store`](crate::Store) by forwarding them to another store.
///
/// # Examples
///
/// ```
/// use requeue_store::{Add, Receipt, Replies, Store, forward_store};
///
/// /// Logs the number of added keys.
/// struct Logged<S>(S);
///
/// impl<S: Store> Store for Logged<S> {
///     fn add<'a>(&'a self, adds: &'a [Add]) -> Replies<'a, Receipt> {
///         println!("{} keys", adds.len());
///         self.0.add(adds)
///     }
///
///     forward_store!(self => self.0; describe, lease, extend, heartbeat, finish, reclaim,
///         expire, forget, remove, look, take, lane, stats, failing, workers, dead, revive,
///         drop_dead, pause, resume, wait);
/// }
/// ```
#[macro_export]
macro_rules! forward_store {
    ($self:ident => $to:expr; $($verb:ident),* $(,)?) => {
        $($crate::forward_store! { @$verb $self $to })*
    };
    (@describe $self:ident $to:expr) => {
        fn describe(&$self) -> String {
            $to.describe()
        }
    };
    (@add $self:ident $to:expr) => {
        fn add<'a>(&'a $self, adds: &'a [$crate::Add]) -> $crate::Replies<'a, $crate::Receipt> {
            $to.add(adds)
        }
    };
    (@lease $self:ident $to:expr) => {
        fn lease<'a>(&'a $self, request: &'a $crate::LeaseRequest) -> $crate::Reply<'a, $crate::Leased> {
            $to.lease(request)
        }
    };
    (@extend $self:ident $to:expr) => {
        fn extend<'a>(&'a $self, owner: &'a $crate::Owner, held: &'a [$crate::Hold], lease: ::std::time::Duration) -> $crate::Replies<'a, bool> {
            $to.extend(owner, held, lease)
        }
    };
    (@heartbeat $self:ident $to:expr) => {
        fn heartbeat<'a>(&'a $self, owner: &'a $crate::Owner) -> $crate::Reply<'a, ()> {
            $to.heartbeat(owner)
        }
    };
    (@take $self:ident $to:expr) => {
        fn take<'a>(&'a $self, request: &'a $crate::TakeRequest) -> $crate::Reply<'a, $crate::Taken> {
            $to.take(request)
        }
    };
    (@lane $self:ident $to:expr) => {
        fn lane(&$self, key: &$crate::Key) -> usize {
            $to.lane(key)
        }
    };
    (@finish $self:ident $to:expr) => {
        fn finish<'a>(&'a $self, requests: &'a [$crate::FinishRequest]) -> $crate::Replies<'a, $crate::Finished> {
            $to.finish(requests)
        }
    };
    (@reclaim $self:ident $to:expr) => {
        fn reclaim<'a>(&'a $self, owner: &'a $crate::Owner, held: &'a [$crate::Hold]) -> $crate::Reply<'a, u64> {
            $to.reclaim(owner, held)
        }
    };
    (@expire $self:ident $to:expr) => {
        fn expire(&$self, max_deliveries: Option<::std::num::NonZeroU32>) -> $crate::Reply<'_, $crate::Expired> {
            $to.expire(max_deliveries)
        }
    };
    (@forget $self:ident $to:expr) => {
        fn forget<'a>(&'a $self, keys: &'a [$crate::Key]) -> $crate::Replies<'a, ()> {
            $to.forget(keys)
        }
    };
    (@remove $self:ident $to:expr) => {
        fn remove<'a>(&'a $self, keys: &'a [$crate::Key]) -> $crate::Replies<'a, bool> {
            $to.remove(keys)
        }
    };
    (@look $self:ident $to:expr) => {
        fn look<'a>(&'a $self, keys: &'a [$crate::Key]) -> $crate::Replies<'a, $crate::Look> {
            $to.look(keys)
        }
    };
    (@stats $self:ident $to:expr) => {
        fn stats(&$self) -> $crate::Reply<'_, $crate::Stats> {
            $to.stats()
        }
    };
    (@failing $self:ident $to:expr) => {
        fn failing(&$self, limit: usize) -> $crate::Reply<'_, Vec<$crate::Failing>> {
            $to.failing(limit)
        }
    };
    (@workers $self:ident $to:expr) => {
        fn workers(&$self) -> $crate::Reply<'_, Vec<$crate::Worker>> {
            $to.workers()
        }
    };
    (@dead $self:ident $to:expr) => {
        fn dead(&$self, limit: usize) -> $crate::Reply<'_, Vec<$crate::Dead>> {
            $to.dead(limit)
        }
    };
    (@revive $self:ident $to:expr) => {
        fn revive<'a>(&'a $self, which: &'a $crate::Which) -> $crate::Reply<'a, u64> {
            $to.revive(which)
        }
    };
    (@drop_dead $self:ident $to:expr) => {
        fn drop_dead<'a>(&'a $self, which: &'a $crate::Which) -> $crate::Reply<'a, u64> {
            $to.drop_dead(which)
        }
    };
    (@pause $self:ident $to:expr) => {
        fn pause(&$self) -> $crate::Reply<'_, ()> {
            $to.pause()
        }
    };
    (@resume $self:ident $to:expr) => {
        fn resume(&$self) -> $crate::Reply<'_, ()> {
            $to.resume()
        }
    };
    (@wait $self:ident $to:expr) => {
        fn wait(&$self, at_most: ::std::time::Duration) -> $crate::Reply<'_, ()> {
            $to.wait(at_most)
        }
    };
}
