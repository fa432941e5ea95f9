//! First come, first served.
//!
//! # Invariants
//!
//! 1. The ring holds the ticket of every ready key once, in the order they became ready.
//!    Between them may stand dead entries, where a key was removed.
//! 2. Without a [`Graveyard`] no entry is dead. With one, at most half of the ring was
//!    dead after the last removal.
//! 3. With a graveyard, `positions` is right for every ticket in the ring.
//!
//! Most queues never remove a key: they keep a bare ring and pay one predictable branch.

use std::collections::VecDeque;
use std::fmt;

use super::{Order, Ticket};
use crate::queue::column::Column;

/// Marks a dead entry. No ticket has this number: a queue holds fewer keys than that.
const DEAD: u32 = u32::MAX;

/// Up to this many entries a removal searches the ring: 128 bytes, two cache lines.
const SEARCHED: usize = 32;

/// Hands out the key that has been ready longest; the default.
///
/// A key that is added again keeps its place. Priorities are ignored.
///
/// Removing a key takes constant time on average. The first removal among many ready
/// keys looks at each of them once.
///
/// # Examples
///
/// ```
/// use requeue::order::{Fifo, Order, Ticket};
///
/// let mut fifo = Fifo::new();
/// let (first, second) = (Ticket::new(0), Ticket::new(1));
/// fifo.push(first, &"a", 0);
/// fifo.push(second, &"b", 100);
/// assert_eq!(Order::<&str>::pop(&mut fifo), Some(first));
/// assert_eq!(fifo.len(), 1);
/// ```
#[derive(Default)]
#[doc(alias = "DefaultQueue")]
pub struct Fifo {
    ring: VecDeque<u32>,
    graveyard: Option<Box<Graveyard>>,
}

/// What is known once a key was removed from a long ring.
struct Graveyard {
    /// By ticket: the running number of its entry in the ring.
    positions: Column<u64>,
    /// The running number of the ring's front entry.
    front: u64,
    /// How many entries of the ring are dead.
    dead: usize,
}

impl Fifo {
    /// An order without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys are ready.
    #[inline]
    pub fn len(&self) -> usize {
        self.ring.len() - self.graveyard.as_ref().map_or(0, |graveyard| graveyard.dead)
    }

    /// Whether no key is ready.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// [`Order::push`], for which a FIFO need not know the key.
    #[inline]
    pub(crate) fn push_back(&mut self, ticket: Ticket) {
        if self.graveyard.is_some() {
            self.note_next(ticket);
        }
        self.ring.push_back(ticket.0);
    }

    #[cold]
    fn note_next(&mut self, ticket: Ticket) {
        if let Some(graveyard) = &mut self.graveyard {
            graveyard.note(ticket.0, self.ring.len());
        }
    }

    /// [`Order::pop`].
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<Ticket> {
        if self.graveyard.is_some() {
            return self.pop_live();
        }
        self.ring.pop_front().map(Ticket)
    }

    /// Pops up to `max` tickets from a ring without a graveyard; none from another. Should
    /// `take` panic, the ticket it was given is popped too.
    #[inline]
    pub(crate) fn pop_bare(&mut self, max: usize, mut take: impl FnMut(Ticket)) {
        if self.graveyard.is_some() {
            return;
        }
        let mut popped = Popped { ring: &mut self.ring, count: 0 };
        let Popped { ring, count } = &mut popped;
        let (front, back) = ring.as_slices();
        for half in [front, back] {
            for ticket in half.iter().take(max - *count) {
                *count += 1;
                take(Ticket(*ticket));
            }
        }
    }

    #[cold]
    fn pop_live(&mut self) -> Option<Ticket> {
        let graveyard = self.graveyard.as_mut()?;
        let live = loop {
            let entry = self.ring.pop_front()?;
            graveyard.front += 1;
            match entry {
                DEAD => graveyard.dead -= 1,
                live => break live,
            }
        };
        self.close_empty_graveyard();
        Some(Ticket(live))
    }

    /// [`Order::remove`], for which a FIFO need not know the key.
    pub(crate) fn take_out(&mut self, ticket: Ticket) {
        if self.graveyard.is_none() && self.ring.len() <= SEARCHED {
            return self.search_and_remove(ticket);
        }
        let ring = &mut self.ring;
        let open = || Box::new(Graveyard::open(ring));
        let graveyard = self.graveyard.get_or_insert_with(open);
        graveyard.bury(ring, ticket.0);
        if graveyard.dead * 2 > ring.len() {
            graveyard.compact(ring);
        }
        self.close_empty_graveyard();
    }

    fn search_and_remove(&mut self, ticket: Ticket) {
        if let Some(index) = self.ring.iter().position(|entry| *entry == ticket.0) {
            self.ring.remove(index);
        }
    }

    /// Goes back to the bare ring once no key is ready: there is nothing to rebuild then.
    fn close_empty_graveyard(&mut self) {
        if self.is_empty() {
            self.ring.clear();
            self.graveyard = None;
        }
    }

    /// [`Order::shrink`].
    pub(crate) fn give_back(&mut self) {
        if self.graveyard.take().is_some() {
            self.ring.retain(|entry| *entry != DEAD);
        }
        self.ring.shrink_to(self.ring.len() * 2);
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let dead = self.ring.iter().filter(|entry| **entry == DEAD).count();
        let Some(graveyard) = &self.graveyard else {
            return assert_eq!(dead, 0, "invariant 2: no graveyard");
        };
        assert_eq!(dead, graveyard.dead, "invariant 2: count");
        let numbered = (graveyard.front..).zip(&self.ring);
        for (position, ticket) in numbered.filter(|(_, entry)| **entry != DEAD) {
            assert_eq!(graveyard.positions.get(*ticket), position, "invariant 3");
        }
    }

    #[cfg(test)]
    pub(super) fn has_graveyard(&self) -> bool {
        self.graveyard.is_some()
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.ring.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

/// Entries at the front of a ring that are to go.
struct Popped<'a> {
    ring: &'a mut VecDeque<u32>,
    count: usize,
}

impl Drop for Popped<'_> {
    fn drop(&mut self) {
        self.ring.drain(..self.count);
    }
}

impl Graveyard {
    fn open(ring: &VecDeque<u32>) -> Self {
        let mut graveyard = Self { positions: Column::default(), front: 0, dead: 0 };
        graveyard.number(ring);
        graveyard
    }

    /// Numbers the entries of a ring without dead ones.
    fn number(&mut self, ring: &VecDeque<u32>) {
        for (index, ticket) in ring.iter().enumerate() {
            self.note(*ticket, index);
        }
    }

    fn note(&mut self, ticket: u32, index: usize) {
        *self.positions.at(ticket) = self.front + index as u64;
    }

    /// Marks the entry of `ticket` as dead; does nothing if the ring does not hold it.
    fn bury(&mut self, ring: &mut VecDeque<u32>, ticket: u32) {
        let position = Some(self.positions.get(ticket));
        let index = position.and_then(|position| position.checked_sub(self.front));
        let index = index.and_then(|index| usize::try_from(index).ok());
        let entry = index.and_then(|index| ring.get_mut(index));
        if let Some(entry) = entry.filter(|entry| **entry == ticket) {
            *entry = DEAD;
            self.dead += 1;
        }
    }

    /// Paid for by the removals that made half of the ring dead.
    #[cold]
    fn compact(&mut self, ring: &mut VecDeque<u32>) {
        ring.retain(|entry| *entry != DEAD);
        self.dead = 0;
        self.number(ring);
    }
}

impl<K> Order<K> for Fifo {
    #[inline]
    fn push(&mut self, ticket: Ticket, _key: &K, _priority: i32) {
        self.push_back(ticket);
    }

    #[inline]
    fn pop(&mut self) -> Option<Ticket> {
        self.pop_front()
    }

    fn remove(&mut self, ticket: Ticket, _key: &K) {
        self.take_out(ticket);
    }

    fn shrink(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Fifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("ready", &self.len()).finish_non_exhaustive()
    }
}
