//! The order in which ready keys are delivered.
//!
//! | order        | delivers next                                            | use it if                              |
//! |--------------|----------------------------------------------------------|----------------------------------------|
//! | [`Fifo`]     | the key that has been ready longest                      | all keys are equal: the default        |
//! | [`Priority`] | the key with the highest priority, sometimes the oldest  | some keys must not wait behind others  |
//! | [`Fair`]     | a key of the next group, round-robin                     | one busy tenant must not delay others  |
//!
//! Implement [`Order`] for any other order.
//!
//! An order contains only ready keys. The queue decides which keys are ready, and adds each
//! of them once.

mod fair;
mod fifo;
mod priority;
#[cfg(test)]
mod tests;

pub use fair::Fair;
pub use fifo::Fifo;
pub use priority::Priority;

/// Decides which ready key is delivered next.
///
/// client-go calls it the storage of a queue. The queue pushes every key that becomes ready,
/// removes every key that is cancelled, and pops the next key to deliver.
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
/// Every pushed ticket is popped eventually, unless it is removed. Only ready tickets are
/// popped. [`pop`](Order::pop) returns `None` only when no key is ready.
/// If it returns `None` although keys are ready, those keys wait until a key is pushed,
/// touched or removed; then the order is asked again. `close_now` and `drain` return them.
///
/// The queue holds its lock during every call: be quick, do not block, and do not call the
/// queue.
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
/// An order that delivers the newest key first:
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
/// // The queue makes these calls. `Ticket::new` exists only for tests.
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
    /// Adds a key that became ready.
    #[doc(alias = "Push")]
    fn push(&mut self, ticket: Ticket, key: &K, priority: i32);

    /// Notes that a ready key was added again.
    ///
    /// `priority` is the higher of its previous priority and the new one, so it never falls.
    /// The default does nothing: the key keeps its position.
    #[doc(alias = "Touch")]
    fn touch(&mut self, ticket: Ticket, key: &K, priority: i32) {
        let _ = (ticket, key, priority);
    }

    /// Removes the key to deliver next and returns its ticket.
    #[doc(alias = "Pop")]
    fn pop(&mut self) -> Option<Ticket>;

    /// Removes a ready key that was cancelled.
    fn remove(&mut self, ticket: Ticket, key: &K);

    /// Frees memory that the ready keys no longer need.
    ///
    /// Called after a spike, when few of many keys are left. The default does nothing.
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

/// Identifies a ready key in an [`Order`].
///
/// A ticket belongs to one key while that key is ready. After it is popped or removed, the
/// queue may use the same ticket for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u32);

impl Ticket {
    /// Returns the ticket as a number.
    ///
    /// Numbers are small and reused: all are below the largest number of keys that the queue
    /// has held at a time. So an order can keep data about ready keys in a vector.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Creates a ticket, to test an order without a queue.
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
