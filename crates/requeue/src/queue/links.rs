//! Doubly linked lists whose members are small numbers.
//!
//! A member's neighbours stand in one vector, at the member's own number. So joining at
//! the back and leaving from anywhere take constant time, and allocate only while the
//! highest number grows.
//!
//! # Invariants
//!
//! 1. A number is in at most one of the lists that share a [`Links`].
//! 2. What a node says means something only while its number is in a list.

use super::column::Column;

/// No neighbour. No ticket has this number: a queue holds fewer keys than that.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    prev: u32,
    next: u32,
}

/// The neighbours of every number.
#[derive(Debug, Default)]
pub(super) struct Links {
    nodes: Column<Node>,
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

    pub(super) fn front(&self) -> Option<u32> {
        Some(self.head).filter(|head| *head != NIL)
    }
}

impl Links {
    /// Appends `id`, which is in no list.
    pub(super) fn push_back(&mut self, list: &mut List, id: u32) {
        let node = Node { prev: list.tail, next: NIL };
        *self.nodes.at(id) = node;
        self.point_forward(list, node.prev, id);
        list.tail = id;
    }

    /// Takes `id` out of `list`, which holds it.
    pub(super) fn unlink(&mut self, list: &mut List, id: u32) {
        let Node { prev, next } = self.nodes.get(id);
        self.point_forward(list, prev, next);
        match next {
            NIL => list.tail = prev,
            next => self.nodes.at(next).prev = prev,
        }
    }

    fn point_forward(&mut self, list: &mut List, from: u32, to: u32) {
        match from {
            NIL => list.head = to,
            from => self.nodes.at(from).next = to,
        }
    }

    /// The members of `list`, front to back.
    #[cfg(test)]
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = u32> + '_ {
        let present = |id: u32| (id != NIL).then_some(id);
        std::iter::successors(present(list.head), move |id| {
            present(self.nodes.get(*id).next)
        })
    }

    /// Gives back the memory of all numbers from `bound` on; none of them is in a list.
    pub(super) fn shrink(&mut self, bound: usize) {
        self.nodes.shrink(bound);
    }
}
