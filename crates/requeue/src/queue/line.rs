//! The order of the ready keys, as the state machine sees it.

use super::order::{Fifo, Order, Ticket};

/// How many slots an order may name in a row that are not ready.
const MAX_SKIPPED: usize = 1 << 16;

/// The default order without a virtual call, or the user's.
pub(super) enum Line<K> {
    Fifo(Fifo),
    Other {
        order: Box<dyn Order<K>>,
        /// Whether the last `pop` named no ready key. The order is asked again only after
        /// its keys have changed: otherwise a waiting getter would spin.
        withholds: bool,
    },
}

impl<K> Line<K> {
    pub(super) fn other(order: Box<dyn Order<K>>) -> Self {
        Self::Other { order, withholds: false }
    }

    /// Whether the order looks at priorities.
    #[inline]
    pub(super) fn heeds_priority(&self) -> bool {
        matches!(self, Self::Other { .. })
    }

    /// Whether the order has keys that it does not name.
    #[inline]
    pub(super) fn withholds(&self) -> bool {
        matches!(self, Self::Other { withholds: true, .. })
    }

    #[inline]
    pub(super) fn push(&mut self, slot: u32, key: &K, priority: i32) {
        match self {
            Self::Fifo(fifo) => fifo.push_back(Ticket(slot)),
            Self::Other { order, withholds } => {
                order.push(Ticket(slot), key, priority);
                *withholds = false;
            }
        }
    }

    pub(super) fn touch(&mut self, slot: u32, key: &K, priority: i32) {
        match self {
            Self::Fifo(_) => {}
            Self::Other { order, withholds } => {
                order.touch(Ticket(slot), key, priority);
                *withholds = false;
            }
        }
    }

    /// Returns the next ready slot.
    ///
    /// A user's order may name slots that are not ready. They are skipped, but not without
    /// end: an order that names nothing else must not hang the queue.
    #[inline(always)]
    pub(super) fn pop(&mut self, is_ready: impl Fn(u32) -> bool) -> Option<u32> {
        match self {
            Self::Fifo(fifo) => fifo.pop_front().map(|Ticket(slot)| slot),
            Self::Other { withholds: true, .. } => None,
            Self::Other { order, withholds } => {
                let named = std::iter::from_fn(|| order.pop()).take(MAX_SKIPPED);
                let slot = named.map(|Ticket(slot)| slot).find(|slot| is_ready(*slot));
                *withholds = slot.is_none();
                slot
            }
        }
    }

    pub(super) fn remove(&mut self, slot: u32, key: &K) {
        match self {
            Self::Fifo(fifo) => fifo.take_out(Ticket(slot)),
            Self::Other { order, withholds } => {
                order.remove(Ticket(slot), key);
                *withholds = false;
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
