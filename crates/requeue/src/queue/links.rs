//! Doubly linked lists of small numbers, such as slots and tickets.
//!
//! The neighbours of each number are stored in one vector, at the index of that number. So
//! appending and removing take constant time, and allocate only when the highest number grows.
//!
//! # Invariants
//!
//! 1. A number is in at most one of the lists that share a [`Links`].
//! 2. A number that is in no list has no neighbours.

use super::column::Column;

/// No neighbour. A queue holds fewer keys than this.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Neighbours {
    prev: u32,
    next: u32,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self { prev: NIL, next: NIL }
    }
}

/// The neighbours of every number.
#[derive(Debug, Default)]
pub(super) struct Links {
    nodes: Column<Neighbours>,
}

/// The two ends of one list.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL }
    }
}

impl List {
    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    #[inline]
    pub(super) fn front(&self) -> Option<u32> {
        Some(self.head).filter(|head| *head != NIL)
    }
}

impl Links {
    /// Appends `id`, which is in no list.
    #[inline]
    pub(super) fn push_back(&mut self, list: &mut List, id: u32) {
        *self.nodes.at(id) = Neighbours { prev: list.tail, next: NIL };
        self.set_next(list, list.tail, id);
        list.tail = id;
    }

    /// Removes the first member.
    #[inline]
    pub(super) fn pop_front(&mut self, list: &mut List) -> Option<u32> {
        let id = list.front()?;
        self.unlink(list, id);
        Some(id)
    }

    /// Removes `id` from `list`, which contains it.
    #[inline]
    pub(super) fn unlink(&mut self, list: &mut List, id: u32) {
        let Neighbours { prev, next } = self.nodes.take(id);
        self.set_next(list, prev, next);
        match next {
            NIL => list.tail = prev,
            next => self.nodes.at(next).prev = prev,
        }
    }

    #[inline]
    fn set_next(&mut self, list: &mut List, of: u32, next: u32) {
        match of {
            NIL => list.head = next,
            of => self.nodes.at(of).next = next,
        }
    }

    /// Returns whether `id` is in `list`, which must be the only list.
    #[inline]
    pub(super) fn contains(&self, list: &List, id: u32) -> bool {
        list.head == id || self.nodes.get(id).prev != NIL // invariant 2
    }

    /// Returns the members of `list`, front to back.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = u32> + '_ {
        let present = |id: u32| (id != NIL).then_some(id);
        std::iter::successors(present(list.head), move |id| {
            present(self.nodes.get(*id).next)
        })
    }

    /// Frees the memory of all numbers from `bound` on, none of which is in a list.
    pub(super) fn shrink(&mut self, bound: usize) {
        self.nodes.shrink(bound);
    }
}

#[cfg(test)]
impl Links {
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }
}
