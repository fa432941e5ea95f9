//! The gauges of queues: what is known of them, and those of one name together.

use super::catalogue::Level;
use crate::metrics::{Gauges, Keeper, Told};

impl Gauges {
    /// A number of keys, if it is known.
    pub(super) fn keys(&self, count: usize) -> Option<Level> {
        (self.keeper != Keeper::SilentStore).then_some(Level::Count(count))
    }

    /// What a store told besides, if one did.
    pub(super) fn told(&self) -> Option<Told> {
        match self.keeper {
            Keeper::Store(told) => Some(told),
            Keeper::Memory | Keeper::SilentStore => None,
        }
    }
}

/// The gauges of two queues of the same name. Those on stores are taken for the same queue,
/// of which one was told later than the other.
pub(super) fn together(one: Gauges, other: Gauges) -> Gauges {
    let in_memory = one.keeper == Keeper::Memory && other.keeper == Keeper::Memory;
    let keys = |one: usize, other: usize| {
        if in_memory { one + other } else { one.max(other) }
    };
    Gauges {
        ready: keys(one.ready, other.ready),
        delayed: keys(one.delayed, other.delayed),
        processing: keys(one.processing, other.processing),
        dirty: keys(one.dirty, other.dirty),
        parked: one.parked + other.parked,
        unfinished: one.unfinished.saturating_add(other.unfinished),
        longest_running: one.longest_running.max(other.longest_running),
        keeper: keeper(one.keeper, other.keeper),
    }
}

/// Who keeps the keys of two queues of the same name: who tells the most.
fn keeper(one: Keeper, other: Keeper) -> Keeper {
    match (one, other) {
        (Keeper::Store(one), Keeper::Store(other)) => Keeper::Store(Told {
            failing: one.failing.max(other.failing),
            dead: one.dead.max(other.dead),
            oldest_ready: one.oldest_ready.max(other.oldest_ready),
            paused: one.paused || other.paused,
        }),
        (told @ Keeper::Store(_), _) | (_, told @ Keeper::Store(_)) => told,
        (Keeper::Memory, _) | (_, Keeper::Memory) => Keeper::Memory,
        (Keeper::SilentStore, Keeper::SilentStore) => Keeper::SilentStore,
    }
}
