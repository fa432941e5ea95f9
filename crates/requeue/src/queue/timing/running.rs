//! The keys that are with a worker, and since when.

use crate::queue::nanos::Nanos;

/// The keys that are with a worker.
///
/// Those that were handed out untimed are not listed, only marked with the era of their
/// hand-out. An era ends when somebody asks how long keys have been out. That moment is
/// then the beginning of all that are left of the era, so that one that hangs is seen.
pub(super) struct Running {
    /// The slots of keys that were handed out timed, and when.
    timed: Vec<(u32, Nanos)>,
    /// The eras that have ended and of which a key is left.
    ended: Vec<Ended>,
    /// This era.
    era: u32,
}

/// Where a key stands: in `timed`, or in an era, which is a number above all of those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place(u32);

/// An era that has ended.
struct Ended {
    era: u32,
    at: Nanos,
    /// How many of its keys are still out.
    left: usize,
}

/// The first era. Fewer timed keys than this can be with a worker.
const FIRST_ERA: u32 = 1 << 31;

impl Default for Running {
    fn default() -> Self {
        Self { timed: Vec::new(), ended: Vec::new(), era: FIRST_ERA }
    }
}

impl Running {
    /// The place of keys that are handed out untimed, until the era ends.
    #[inline]
    pub(super) fn untimed(&self) -> Place {
        Place(self.era)
    }

    /// A key was handed out; [`stamp`](Self::stamp) says when.
    pub(super) fn begin(&mut self, slot: u32) -> Place {
        let place = u32::try_from(self.timed.len()).unwrap_or(FIRST_ERA);
        assert!(place < FIRST_ERA, "fewer than {FIRST_ERA} keys are with workers");
        self.timed.push((slot, 0));
        Place(place)
    }

    pub(super) fn stamp(&mut self, place: Place, now: Nanos) {
        if let Some((_, since)) = self.timed.get_mut(place.0 as usize) {
            *since = now;
        }
    }

    /// A key was finished that is not of this era: since when it was out, and the slot of
    /// the key, if there is one, that stands in its place now.
    pub(super) fn end(&mut self, place: Place) -> (Nanos, Option<u32>) {
        if place.0 >= FIRST_ERA {
            return (self.end_met(place), None);
        }
        let (_, since) = self.timed.swap_remove(place.0 as usize);
        (since, self.timed.get(place.0 as usize).map(|(slot, _)| *slot))
    }

    /// The same for a key of an era that has ended.
    fn end_met(&mut self, Place(era): Place) -> Nanos {
        let index = self.ended.iter().position(|ended| ended.era == era);
        let index = index.expect("an era is kept while a key of it is left");
        let ended = &mut self.ended[index];
        ended.left -= 1;
        let (at, left) = (ended.at, ended.left);
        if left == 0 {
            self.ended.swap_remove(index);
        }
        at
    }

    /// Ends the era if it has left a key, given how many keys are out in all.
    pub(super) fn meet(&mut self, processing: usize, now: Nanos) {
        let met: usize = self.ended.iter().map(|ended| ended.left).sum();
        let left = processing - self.timed.len() - met;
        if left > 0 {
            self.ended.push(Ended { era: self.era, at: now, left });
            self.era = self.era.checked_add(1).unwrap_or(FIRST_ERA);
        }
    }

    /// How long the keys have been out: added up, and the longest.
    pub(super) fn times(&self, now: Nanos) -> (Nanos, Nanos) {
        let timed = self.timed.iter().map(|(_, since)| (*since, 1));
        let met = self.ended.iter().map(|ended| (ended.at, ended.left as Nanos));
        timed.chain(met).fold((0, 0), |(sum, longest): (Nanos, Nanos), (since, keys)| {
            let time = now.saturating_sub(since);
            (sum.saturating_add(time.saturating_mul(keys)), longest.max(time))
        })
    }
}
