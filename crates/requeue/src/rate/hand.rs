//! A walk around a table, a few places at a time, to choose what has to leave it.
//!
//! It knows nothing of a table but how many places it has, of which there may be more or
//! fewer at each step.

/// The place at which the walk stands.
#[derive(Debug, Default)]
pub(crate) struct Hand(usize);

impl Hand {
    /// Moves on by one of `size` places, and gives the one that is reached.
    #[inline]
    pub(crate) fn step(&mut self, size: usize) -> usize {
        self.0 = if self.0 + 1 < size { self.0 + 1 } else { 0 };
        self.0
    }

    /// Walks on past `count` places that have a rank, or once around, and gives the one
    /// whose rank comes first.
    ///
    /// Where keys stand by their hashes, the places it meets are a random sample.
    #[cold]
    pub(crate) fn first_of<R: Ord>(
        &mut self,
        size: usize,
        count: usize,
        rank: impl Fn(usize) -> Option<R>,
    ) -> Option<usize> {
        let places = (0..size).map(|_| self.step(size));
        let ranked = places.filter_map(|place| Some((rank(place)?, place)));
        ranked.take(count).min().map(|(_, place)| place)
    }
}
