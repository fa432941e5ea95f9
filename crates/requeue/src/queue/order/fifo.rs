//! First in, first out.
//!
//! # Invariant
//!
//! 1. The list holds the ticket of every ready key once, in the order in which the keys became
//!    ready.

use std::fmt;

use super::{Order, Ticket};
use crate::queue::links::{Links, List};

/// Delivers the key that has been ready longest. This is the default.
///
/// A ready key that is added again keeps its position. Priorities are ignored. Every operation
/// takes constant time.
///
/// # Examples
///
/// ```
/// use requeue::order::{Fifo, Order, Ticket};
///
/// let mut fifo = Fifo::new();
/// let (first, second) = (Ticket::new(0), Ticket::new(1));
/// fifo.push(first, &"a", 0);
/// fifo.push(second, &"b", 100);
/// assert_eq!(Order::<&str>::pop(&mut fifo), Some(first));
/// assert_eq!(fifo.len(), 1);
/// ```
#[derive(Default)]
#[doc(alias = "DefaultQueue")]
pub struct Fifo {
    list: List,
    links: Links,
    len: usize,
}

impl Fifo {
    /// Creates an order without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of ready keys.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no key is ready.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// [`Order::push`], which does not need the key here.
    #[inline]
    pub(crate) fn push_back(&mut self, ticket: Ticket) {
        debug_assert!(!self.links.contains(&self.list, ticket.0), "invariant 1");
        self.links.push_back(&mut self.list, ticket.0);
        self.len += 1;
    }

    /// [`Order::pop`].
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<Ticket> {
        let ticket = self.links.pop_front(&mut self.list)?;
        self.len -= 1;
        Some(Ticket(ticket))
    }

    /// [`Order::remove`], which does not need the key here.
    pub(crate) fn take_out(&mut self, ticket: Ticket) {
        if self.links.contains(&self.list, ticket.0) {
            self.links.unlink(&mut self.list, ticket.0);
            self.len -= 1;
        }
    }

    /// [`Order::shrink`].
    pub(crate) fn free_unused(&mut self) {
        let highest = self.links.iter(&self.list).max();
        self.links.shrink(highest.map_or(0, |ticket| ticket as usize + 1));
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.links.iter(&self.list).count(), self.len, "invariant 1");
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.links.capacity()
    }
}

impl<K> Order<K> for Fifo {
    #[inline]
    fn push(&mut self, ticket: Ticket, _key: &K, _priority: i32) {
        self.push_back(ticket);
    }

    #[inline]
    fn pop(&mut self) -> Option<Ticket> {
        self.pop_front()
    }

    fn remove(&mut self, ticket: Ticket, _key: &K) {
        self.take_out(ticket);
    }

    fn shrink(&mut self) {
        self.free_unused();
    }
}

impl fmt::Debug for Fifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("ready", &self.len).finish_non_exhaustive()
    }
}
