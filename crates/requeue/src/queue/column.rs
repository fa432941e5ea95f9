//! Values by slot, for properties that most keys do not have.

/// Values by slot. A slot without a value has the default.
///
/// It stays empty until the first value is set, and grows with the highest slot.
#[derive(Debug, Default)]
pub(super) struct Column<T>(Vec<T>);

impl<T: Copy + Default> Column<T> {
    /// Returns whether no value was set since the column was created or shrunk to nothing.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> T {
        self.0.get(slot as usize).copied().unwrap_or_default()
    }

    /// Returns the value to be changed, and makes room for it.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> &mut T {
        let index = slot as usize;
        if self.0.len() <= index {
            self.grow(index);
        }
        &mut self.0[index]
    }

    /// Returns the value to be changed, if there is room for it.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.0.get_mut(slot as usize)
    }

    /// Resets a value to the default and returns it.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> T {
        self.get_mut(slot).map(std::mem::take).unwrap_or_default()
    }

    /// Fills all the room there is, so that slots that come one by one rarely get here.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, index: usize) {
        self.0.reserve(index + 1 - self.0.len());
        self.0.resize(self.0.capacity(), T::default());
    }

    /// Frees the memory of the slots from `bound` on, whose values are lost.
    pub(super) fn shrink(&mut self, bound: usize) {
        self.0.truncate(bound);
        self.0.shrink_to(bound);
    }

    /// Returns all values, those that were not set included.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        (0..).zip(self.0.iter().copied())
    }
}

impl<T: Copy> Column<Option<T>> {
    /// Returns one more than the highest slot that has a value.
    pub(super) fn bound(&self) -> usize {
        self.0.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
impl<T> Column<T> {
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}
