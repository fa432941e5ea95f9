//! When keys were added and handed out; kept only while somebody measures.

/// Nanoseconds since the queue was built.
pub(super) type Nanos = u64;

/// The times of the keys in one queue, by slot.
#[derive(Default)]
pub(super) struct Timing {
    /// Since when a ready or dirty key waits.
    added: Vec<Nanos>,
    /// Where in `running` a key that is processed stands.
    place: Vec<u32>,
    /// The slots of keys that are with a worker, and since when.
    running: Vec<(u32, Nanos)>,
    /// Adds since the last [`Timing::take_adds`].
    adds: u32,
}

impl Timing {
    /// A key became ready, or dirty.
    pub(super) fn add(&mut self, slot: u32, now: Nanos) {
        *at(&mut self.added, slot) = now;
        self.adds += 1;
    }

    /// A key was handed out: how long it had waited.
    pub(super) fn get(&mut self, slot: u32, now: Nanos) -> Nanos {
        let place = u32::try_from(self.running.len()).expect("fewer leases than slots");
        *at(&mut self.place, slot) = place;
        self.running.push((slot, now));
        now.saturating_sub(*at(&mut self.added, slot))
    }

    /// A key was finished: how long it had been with its worker.
    pub(super) fn done(&mut self, slot: u32, now: Nanos) -> Nanos {
        let place = *at(&mut self.place, slot);
        let (_, since) = self.running.swap_remove(place as usize);
        if let Some(&(moved, _)) = self.running.get(place as usize) {
            *at(&mut self.place, moved) = place;
        }
        now.saturating_sub(since)
    }

    /// How many keys were added since the last call.
    pub(super) fn take_adds(&mut self) -> u32 {
        std::mem::take(&mut self.adds)
    }

    /// How long the keys with a worker have been there: added up, and the longest.
    pub(super) fn running(&self, now: Nanos) -> (Nanos, Nanos) {
        self.running
            .iter()
            .map(|(_, since)| now.saturating_sub(*since))
            .fold((0, 0), |(sum, longest), time| {
                (Nanos::saturating_add(sum, time), longest.max(time))
            })
    }

    /// Forgets the times of slots that are gone.
    pub(super) fn shrink(&mut self, bound: usize) {
        shrink_to(&mut self.added, bound);
        shrink_to(&mut self.place, bound);
    }
}

/// The element of `column` for `slot`; the column grows to hold it.
pub(super) fn at<T: Copy + Default>(column: &mut Vec<T>, slot: u32) -> &mut T {
    let index = slot as usize;
    if column.len() <= index {
        column.resize(index + 1, T::default());
    }
    &mut column[index]
}

/// Cuts `column` down to the slots that are left after a spike.
pub(super) fn shrink_to<T>(column: &mut Vec<T>, bound: usize) {
    column.truncate(bound);
    column.shrink_to(bound);
}
