//! In which order ready keys are handed out.
//!
//! | order        | hands out next                                              | choose it when                          |
//! |--------------|-------------------------------------------------------------|-----------------------------------------|
//! | [`Fifo`]     | the key that has been ready longest                         | nothing speaks against it: the default  |
//! | [`Priority`] | the key with the highest priority, old keys now and then    | some keys must not queue behind others  |
//! | [`Fair`]     | a key of the next group, the groups taking turns            | one busy tenant must not hold up others |
//!
//! Implement [`Order`] for any other order.
//!
//! An order knows ready keys only. Which keys are ready, and that none is ready twice, is
//! the business of the queue.

mod fair;
mod fifo;
mod priority;
#[cfg(test)]
mod tests;

pub use fair::Fair;
pub use fifo::Fifo;
pub use priority::Priority;

/// Decides which ready key is handed out next.
///
/// This is what client-go calls the storage of a queue. The queue tells its order about
/// every key that becomes ready or stops being ready, and asks it for the next one.
///
/// # What the queue promises
///
/// Each ready key has its own [`Ticket`]. A ticket is pushed once, then touched any
/// number of times, then popped or removed once. After that it may be pushed again, for
/// the same key or another. The key passed to `touch` and `remove` is the key that was
/// pushed with that ticket.
///
/// # What the order promises
///
/// Every ticket that was pushed is popped some day unless it is removed, and none is
/// popped that is not ready. [`pop`](Order::pop) returns `None` only when no key is ready.
/// If it returns `None` although keys are ready, those keys wait until a key is pushed,
/// touched or removed; then the order is asked again. `close_now` and `drain` return them.
///
/// Every call is made with the queue's lock held: be quick, do not block, and do not
/// call the queue.
///
/// # Panics
///
/// A method that panics must leave the order as it was: call code that may panic before
/// changing anything. What happens then depends on the caller:
///
/// | the queue calls the order in | the panic |
/// |---|---|
/// | an add, `postpone` or `remove` | reaches the caller; the queue is unchanged |
/// | a `get` | reaches the getter; the queue is unchanged |
/// | the end of a lease, or of a delay | is contained and counted; the key is [stranded](crate::Queue::stranded) |
/// | `close_now` and `drain` | is contained; the keys are returned |
///
/// # Examples
///
/// An order that hands out the newest key first:
///
/// ```
/// use requeue::order::{Order, Ticket};
///
/// #[derive(Default)]
/// struct Lifo(Vec<Ticket>);
///
/// impl<K> Order<K> for Lifo {
///     fn push(&mut self, ticket: Ticket, _key: &K, _priority: i32) {
///         self.0.push(ticket);
///     }
///
///     fn pop(&mut self) -> Option<Ticket> {
///         self.0.pop()
///     }
///
///     fn remove(&mut self, ticket: Ticket, _key: &K) {
///         self.0.retain(|other| *other != ticket);
///     }
/// }
///
/// // What the queue does with it. `Ticket::new` is there for tests only.
/// let mut lifo = Lifo::default();
/// for (index, key) in ["a", "b", "c"].iter().enumerate() {
///     lifo.push(Ticket::new(index), key, 0);
/// }
/// lifo.remove(Ticket::new(1), &"b");
/// assert_eq!(Order::<&str>::pop(&mut lifo), Some(Ticket::new(2)));
/// assert_eq!(Order::<&str>::pop(&mut lifo), Some(Ticket::new(0)));
/// assert_eq!(Order::<&str>::pop(&mut lifo), None);
/// ```
#[doc(alias = "Queue")]
pub trait Order<K>: Send {
    /// Takes in a key that became ready.
    #[doc(alias = "Push")]
    fn push(&mut self, ticket: Ticket, key: &K, priority: i32);

    /// Hears that a ready key was added again.
    ///
    /// `priority` is the higher of the priority it had and the one it was added with, so
    /// it never sinks. Does nothing by default: the key keeps its place.
    #[doc(alias = "Touch")]
    fn touch(&mut self, ticket: Ticket, key: &K, priority: i32) {
        let _ = (ticket, key, priority);
    }

    /// Chooses the key to hand out next; it is no longer ready.
    #[doc(alias = "Pop")]
    fn pop(&mut self) -> Option<Ticket>;

    /// Forgets a key that is no longer ready, though it was not popped.
    fn remove(&mut self, ticket: Ticket, key: &K);

    /// Gives back memory that the ready keys no longer need.
    ///
    /// Called now and then, after many keys were ready and few are left. Does nothing by
    /// default.
    fn shrink(&mut self) {}
}

impl<K, O: Order<K> + ?Sized> Order<K> for Box<O> {
    fn push(&mut self, ticket: Ticket, key: &K, priority: i32) {
        (**self).push(ticket, key, priority);
    }

    fn touch(&mut self, ticket: Ticket, key: &K, priority: i32) {
        (**self).touch(ticket, key, priority);
    }

    fn pop(&mut self) -> Option<Ticket> {
        (**self).pop()
    }

    fn remove(&mut self, ticket: Ticket, key: &K) {
        (**self).remove(ticket, key);
    }

    fn shrink(&mut self) {
        (**self).shrink();
    }
}

/// A ready key, as an [`Order`] knows it.
///
/// A ticket stands for one ready key for as long as that key is ready; after it was
/// popped or removed, the same ticket may stand for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u32);

impl Ticket {
    /// The ticket as a number.
    ///
    /// Numbers are small and used again: all are below the largest number of keys the
    /// queue has held at a time. An order can keep what it knows of a ready key in a
    /// vector, at this index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Makes a ticket, to test an order without a queue.
    ///
    /// # Panics
    ///
    /// If `index` is not below `u32::MAX`.
    #[cfg(any(test, feature = "testing"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn new(index: usize) -> Self {
        let number = u32::try_from(index).ok().filter(|number| *number < u32::MAX);
        Self(number.expect("a ticket is below u32::MAX"))
    }
}
