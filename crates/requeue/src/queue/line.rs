//! The order of the ready keys, as the state machine sees it.

use super::order::{Fifo, Order, Ticket};

/// The default order without a virtual call, or another.
pub(super) enum Line<K> {
    Fifo(Fifo),
    Other(Box<dyn Order<K>>),
}

impl<K> Line<K> {
    /// Whether priorities matter.
    #[inline]
    pub(super) fn heeds_priority(&self) -> bool {
        matches!(self, Self::Other(_))
    }

    #[inline]
    pub(super) fn push(&mut self, slot: u32, key: &K, level: i32) {
        match self {
            Self::Fifo(fifo) => fifo.push_back(Ticket(slot)),
            Self::Other(order) => order.push(Ticket(slot), key, level),
        }
    }

    /// The same for the default order, which need not know the key.
    #[inline]
    pub(super) fn push_bare(&mut self, slot: u32) {
        if let Self::Fifo(fifo) = self {
            fifo.push_back(Ticket(slot));
        }
    }

    pub(super) fn touch(&mut self, slot: u32, key: &K, level: i32) {
        match self {
            Self::Fifo(_) => {}
            Self::Other(order) => order.touch(Ticket(slot), key, level),
        }
    }

    /// The next slot, if it is one that `is_ready`. An order of the user's may name
    /// others: they are passed over.
    #[inline]
    pub(super) fn pop(&mut self, is_ready: impl Fn(u32) -> bool) -> Option<u32> {
        match self {
            Self::Fifo(fifo) => fifo.pop_front().map(|Ticket(slot)| slot),
            Self::Other(order) => loop {
                let Ticket(slot) = order.pop()?;
                if is_ready(slot) {
                    return Some(slot);
                }
            },
        }
    }

    pub(super) fn remove(&mut self, slot: u32, key: &K) {
        match self {
            Self::Fifo(fifo) => fifo.take_out(Ticket(slot)),
            Self::Other(order) => order.remove(Ticket(slot), key),
        }
    }

    pub(super) fn shrink(&mut self) {
        match self {
            Self::Fifo(fifo) => fifo.give_back(),
            Self::Other(order) => order.shrink(),
        }
    }
}
