//! What tables with linear probing have in common.
//!
//! An entry's home is its hash scaled to the size of the table, not taken modulo it. So a
//! table may have any size; and entries stand nearly in the order of their hashes, so that
//! growing reads and writes memory from front to back.
//!
//! # Invariants
//!
//! 1. At least one place is empty, so that every search ends.
//! 2. No place between the home of an entry and the entry itself is empty, counting past
//!    the end on from the start.

/// A place in a table: empty, or taken by an entry that knows its home.
pub(crate) trait Place: Sized {
    /// A place that is not taken.
    fn empty() -> Self;

    fn is_empty(&self) -> bool;

    /// Where the search for this entry begins in a table of `size` places. An empty place
    /// has no home, and is not asked.
    fn home(&self, size: usize) -> usize;
}

/// `size` places, all empty.
pub(crate) fn empty<P: Place>(size: usize) -> Vec<P> {
    std::iter::repeat_with(P::empty).take(size).collect()
}

/// The place after `place` in a table of `size` places.
#[inline]
pub(crate) fn after(place: usize, size: usize) -> usize {
    if place + 1 == size { 0 } else { place + 1 }
}

/// Puts an entry at the first empty place from its home on.
#[inline]
pub(crate) fn put<P: Place>(places: &mut [P], entry: P) {
    let mut place = entry.home(places.len());
    while !places[place].is_empty() {
        place = after(place, places.len());
    }
    places[place] = entry;
}

/// Moves later entries up into a gap, until none would miss it: invariant 2.
#[inline]
pub(crate) fn close_gap<P: Place>(places: &mut [P], mut gap: usize) {
    let mut place = after(gap, places.len());
    while !places[place].is_empty() {
        if !is_between(gap, places[place].home(places.len()), place) {
            places.swap(gap, place);
            gap = place;
        }
        place = after(place, places.len());
    }
}

/// Whether `home` lies after `gap` and not after `place`, counting past the end on from
/// the start: then what stands at `place` is found without passing the gap, and need not
/// move up into it.
#[inline]
fn is_between(gap: usize, home: usize, place: usize) -> bool {
    if gap <= place { gap < home && home <= place } else { gap < home || home <= place }
}

/// Makes a table larger, in the memory it has and more: fresh memory for all of it would
/// cost more than the rest, a fault for each page.
///
/// From the last place to the first each entry moves up, to a place behind which all have
/// moved. The few that cannot, near the start and at the end, wait for the others.
pub(crate) fn stretch<P: Place>(places: &mut Vec<P>, size: usize) {
    let before = places.len();
    places.reserve_exact(size - before);
    places.resize_with(size, P::empty);
    let mut late = Vec::new();
    for place in (0..before).rev() {
        if places[place].is_empty() {
            continue;
        }
        match gap_above(places, place) {
            Some(gap) => places.swap(place, gap),
            None => late.push(std::mem::replace(&mut places[place], P::empty())),
        }
    }
    for entry in late {
        put(places, entry);
    }
}

/// The gap to which the entry at `place` can move if its home lies above that, and no
/// entry that stands there is yet to move. It must not go on from the start, where entries
/// are that will leave gaps.
#[inline]
fn gap_above<P: Place>(places: &[P], place: usize) -> Option<usize> {
    let home = places[place].home(places.len());
    let above = places.get(home..).filter(|_| home > place)?;
    above.iter().position(P::is_empty).map(|gap| home + gap)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Panics unless the invariants in the module docs hold.
    pub(crate) fn check<P: Place>(places: &[P]) {
        assert!(places.is_empty() || places.iter().any(P::is_empty), "invariant 1");
        for (place, entry) in places.iter().enumerate() {
            if !entry.is_empty() {
                check_reach(places, entry.home(places.len()), place);
            }
        }
    }

    fn check_reach<P: Place>(places: &[P], home: usize, place: usize) {
        let mut on_the_way = home;
        while on_the_way != place {
            assert!(!places[on_the_way].is_empty(), "invariant 2");
            on_the_way = after(on_the_way, places.len());
        }
    }

    /// A hash of 16 bits.
    impl Place for Option<u16> {
        fn empty() -> Self {
            None
        }

        fn is_empty(&self) -> bool {
            self.is_none()
        }

        fn home(&self, size: usize) -> usize {
            (usize::from(self.unwrap()) * size) >> 16
        }
    }

    fn hashes() -> impl Strategy<Value = Vec<u16>> {
        let crowded = prop_oneof![0..4_u16, (0..4_u16).prop_map(|low| !low)];
        prop::collection::vec(prop_oneof![crowded, any::<u16>()], 0..200)
    }

    proptest! {
        /// Two entries once went to one place when a table grew: one that stood out of
        /// order had filled the gap that told where a run of entries began.
        #[test]
        fn table_that_grows_keeps_all_entries_within_reach(
            mut hashes in hashes(), more in 1..200usize, room in 1..50usize
        ) {
            let mut places = empty(hashes.len() + room);
            for hash in &hashes {
                put(&mut places, Some(*hash));
            }
            let size = places.len() + more;
            stretch(&mut places, size);
            check(&places);
            let mut kept: Vec<_> = places.into_iter().flatten().collect();
            kept.sort_unstable();
            hashes.sort_unstable();
            prop_assert_eq!(kept, hashes);
        }
    }
}
