//! The highest priority first, without starving the others.
//!
//! # Invariants
//!
//! 1. A ticket has a priority exactly while its key is ready. It is then in the list of
//!    that level, and in the list of ages if there is one.
//! 2. No level is empty.
//! 3. A level is in the order in which keys entered it; the ages are in the order in
//!    which keys became ready.
//! 4. `passed` counts the deliveries since the front of the ages became the front. It
//!    never exceeds `limit`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use super::{Order, Ticket};
use crate::queue::column::Column;
use crate::queue::links::{Links, List};

/// The default for how often the oldest key is passed over.
///
/// With one delivery in 257, keys that would starve use less than 0.4 % of the workers' time
/// and still make progress under any load.
const DEFAULT_PASSES: u32 = 256;

/// Delivers the key with the highest priority; equal ones as [`Fifo`](super::Fifo).
///
/// The rules are controller-runtime's. A higher number goes first. Inside a level, keys
/// go in the order in which they entered that level. A ready key that is added again with
/// a higher priority moves to the end of its new level. With the same or a lower priority
/// it keeps its position.
///
/// # Ageing
///
/// In controller-runtime, keys of a low priority wait forever while enough others arrive.
/// Here, the key that has been ready longest is passed over at most 256 times in a row. Then
/// it is delivered, whatever its priority. If `n` keys were ready before it, a key is
/// delivered after at most `(n + 1) * 257` deliveries.
///
/// Ageing counts deliveries, not time. So its share of the work is the same at any speed, and
/// a burst of keys does not grow old all at once. [`Priority::ageing`] sets the number,
/// [`Priority::strict`] disables ageing.
///
/// Every operation takes time logarithmic in the number of different priorities.
///
/// # Examples
///
/// ```
/// use requeue::order::{Order, Priority, Ticket};
///
/// let mut order = Priority::new();
/// let (backfill, event) = (Ticket::new(0), Ticket::new(1));
/// order.push(backfill, &"a", -100);
/// order.push(event, &"b", 0);
/// assert_eq!(Order::<&str>::pop(&mut order), Some(event));
/// assert_eq!(Order::<&str>::pop(&mut order), Some(backfill));
/// ```
#[doc(alias = "PriorityQueue")]
pub struct Priority {
    /// By ticket.
    priorities: Column<Option<i32>>,
    levels: BTreeMap<i32, List>,
    in_level: Links,
    ages: Option<Ages>,
}

/// Which key has been ready longest, and how often it was passed over.
#[derive(Default)]
struct Ages {
    limit: u32,
    passed: u32,
    oldest_first: List,
    links: Links,
}

impl Priority {
    /// Creates an order that passes the oldest key over at most 256 times in a row.
    pub fn new() -> Self {
        Self::ageing(DEFAULT_PASSES)
    }

    /// Creates an order that passes the oldest key over at most `passes` times in a row.
    ///
    /// With zero, the oldest key is never passed over, and the order is that of [`Fifo`](super::Fifo).
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::order::{Order, Priority, Ticket};
    ///
    /// let mut order = Priority::ageing(2);
    /// order.push(Ticket::new(0), &"low", -1);
    /// for index in 1..5 {
    ///     order.push(Ticket::new(index), &"high", 1);
    /// }
    /// let delivered = std::iter::from_fn(|| Order::<&str>::pop(&mut order));
    /// let indices: Vec<usize> = delivered.map(Ticket::index).collect();
    /// assert_eq!(indices, [1, 2, 0, 3, 4]);
    /// ```
    pub fn ageing(passes: u32) -> Self {
        Self { ages: Some(Ages { limit: passes, ..Ages::default() }), ..Self::strict() }
    }

    /// Creates an order without ageing, as in controller-runtime.
    ///
    /// A key waits for as long as keys with a higher priority arrive, possibly forever.
    pub fn strict() -> Self {
        Self {
            priorities: Column::default(),
            levels: BTreeMap::new(),
            in_level: Links::default(),
            ages: None,
        }
    }

    /// Returns the oldest key if it must not be passed over again, otherwise the first key of
    /// the highest level.
    fn next(&self) -> Option<u32> {
        let overdue = self.ages.as_ref().and_then(Ages::overdue);
        overdue.or_else(|| self.levels.last_key_value()?.1.front())
    }

    fn enter_level(&mut self, ticket: u32, priority: i32) {
        *self.priorities.at(ticket) = Some(priority);
        self.in_level.push_back(self.levels.entry(priority).or_default(), ticket);
    }

    /// Removes a ready ticket from its level.
    fn leave_level(&mut self, ticket: u32, priority: i32) {
        self.priorities.take(ticket);
        if let Entry::Occupied(mut level) = self.levels.entry(priority) {
            self.in_level.unlink(level.get_mut(), ticket);
            if level.get().is_empty() {
                level.remove(); // invariant 2
            }
        }
    }

    fn priority(&self, ticket: u32) -> Option<i32> {
        self.priorities.get(ticket)
    }

    fn ready(&self) -> usize {
        self.priorities.iter().filter(|(_, priority)| priority.is_some()).count()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut ready = 0;
        for (priority, level) in &self.levels {
            assert!(!level.is_empty(), "invariant 2");
            for ticket in self.in_level.iter(level) {
                assert_eq!(self.priority(ticket), Some(*priority), "invariant 1");
                ready += 1;
            }
        }
        assert_eq!(ready, self.ready(), "invariant 1");
        if let Some(ages) = &self.ages {
            assert_eq!(ages.links.iter(&ages.oldest_first).count(), ready, "invariant 1");
            assert!(ages.passed <= ages.limit, "invariant 4");
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.priorities.capacity()
    }
}

impl Ages {
    fn overdue(&self) -> Option<u32> {
        if self.passed < self.limit { None } else { self.oldest_first.front() }
    }

    fn join(&mut self, ticket: u32) {
        self.links.push_back(&mut self.oldest_first, ticket);
    }

    /// Removes a ticket. The next oldest one has not been passed over yet.
    fn leave(&mut self, ticket: u32) {
        if self.oldest_first.front() == Some(ticket) {
            self.passed = 0;
        }
        self.links.unlink(&mut self.oldest_first, ticket);
    }

    fn hand_out(&mut self, ticket: u32) {
        if self.oldest_first.front() != Some(ticket) {
            self.passed += 1; // invariant 4: at the limit, the oldest key is delivered
        }
        self.leave(ticket);
    }
}

impl<K> Order<K> for Priority {
    fn push(&mut self, ticket: Ticket, _key: &K, priority: i32) {
        debug_assert_eq!(self.priority(ticket.0), None, "a ticket is pushed once");
        self.enter_level(ticket.0, priority);
        if let Some(ages) = &mut self.ages {
            ages.join(ticket.0);
        }
    }

    fn touch(&mut self, ticket: Ticket, _key: &K, priority: i32) {
        let Some(before) = self.priority(ticket.0) else { return };
        if before < priority {
            self.leave_level(ticket.0, before);
            self.enter_level(ticket.0, priority);
        }
    }

    fn pop(&mut self) -> Option<Ticket> {
        let ticket = self.next()?;
        let priority = self.priority(ticket)?;
        self.leave_level(ticket, priority);
        if let Some(ages) = &mut self.ages {
            ages.hand_out(ticket);
        }
        Some(Ticket(ticket))
    }

    fn remove(&mut self, ticket: Ticket, _key: &K) {
        let Some(priority) = self.priority(ticket.0) else { return };
        self.leave_level(ticket.0, priority);
        if let Some(ages) = &mut self.ages {
            ages.leave(ticket.0);
        }
    }

    fn shrink(&mut self) {
        let bound = self.priorities.bound();
        self.priorities.shrink(bound);
        self.in_level.shrink(bound);
        if let Some(ages) = &mut self.ages {
            ages.links.shrink(bound);
        }
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Priority")
            .field("ready", &self.ready())
            .field("levels", &self.levels.len())
            .field("passes", &self.ages.as_ref().map(|ages| ages.limit))
            .finish_non_exhaustive()
    }
}
