//! The order of the ready keys, as the state machine sees it.

use super::order::{Fifo, Order, Ticket};

/// How many slots that are not ready an order may return in a row.
const MAX_SKIPPED: usize = 1 << 16;

/// The default order without a virtual call, or the user's.
pub(super) enum Line<K> {
    Fifo(Fifo),
    Other {
        order: Box<dyn Order<K>>,
        /// Whether the last `pop` returned no ready key. `pop` is called again only after the
        /// keys of the order have changed: otherwise a waiting getter would spin.
        withheld: bool,
    },
}

impl<K> Line<K> {
    pub(super) fn other(order: Box<dyn Order<K>>) -> Self {
        Self::Other { order, withheld: false }
    }

    /// Returns whether priorities matter.
    #[inline]
    pub(super) fn uses_priorities(&self) -> bool {
        matches!(self, Self::Other { .. })
    }

    /// Returns whether the order has ready keys that it did not return.
    #[inline]
    pub(super) fn has_withheld(&self) -> bool {
        matches!(self, Self::Other { withheld: true, .. })
    }

    #[inline]
    pub(super) fn push(&mut self, slot: u32, key: &K, priority: i32) {
        match self {
            Self::Fifo(fifo) => fifo.push_back(Ticket(slot)),
            Self::Other { order, withheld } => {
                order.push(Ticket(slot), key, priority);
                *withheld = false;
            }
        }
    }

    pub(super) fn touch(&mut self, slot: u32, key: &K, priority: i32) {
        match self {
            Self::Fifo(_) => {}
            Self::Other { order, withheld } => {
                order.touch(Ticket(slot), key, priority);
                *withheld = false;
            }
        }
    }

    /// Returns the next ready slot.
    ///
    /// A user's order may return slots that are not ready. They are skipped up to a limit, so
    /// that an order that returns nothing else does not hang the queue.
    #[inline(always)]
    pub(super) fn pop(&mut self, is_ready: impl Fn(u32) -> bool) -> Option<u32> {
        match self {
            Self::Fifo(fifo) => fifo.pop_front().map(|Ticket(slot)| slot),
            Self::Other { withheld: true, .. } => None,
            Self::Other { order, withheld } => {
                let popped = std::iter::from_fn(|| order.pop()).take(MAX_SKIPPED);
                let slot = popped.map(|Ticket(slot)| slot).find(|slot| is_ready(*slot));
                *withheld = slot.is_none();
                slot
            }
        }
    }

    pub(super) fn remove(&mut self, slot: u32, key: &K) {
        match self {
            Self::Fifo(fifo) => fifo.take_out(Ticket(slot)),
            Self::Other { order, withheld } => {
                order.remove(Ticket(slot), key);
                *withheld = false;
            }
        }
    }

    pub(super) fn shrink(&mut self) {
        match self {
            Self::Fifo(fifo) => fifo.free_unused(),
            Self::Other { order, .. } => order.shrink(),
        }
    }
}
