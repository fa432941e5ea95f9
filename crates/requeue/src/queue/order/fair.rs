//! Round-robin over groups of keys.
//!
//! # Invariants
//!
//! 1. A ticket has a group exactly while its key is ready, and is then in the list of
//!    that group.
//! 2. A group is known exactly while it has a ready key: it is then in the rotation and
//!    in the table.
//! 3. The front of the rotation has the turn. It has at least one delivery left.
//!
//! User code is the two functions, and `Hash`, `Eq` and `Drop` of a group. All but `Drop`
//! runs in `push`, before anything changes. Removing a group compares slots and uses
//! the stored hash; a panic in `Drop` is contained.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::{Order, Ticket};
use crate::contain::contain;
use crate::queue::column::Column;
use crate::queue::links::{Links, List};

/// Delivers one key of each group in turn; keys of one group as [`Fifo`](super::Fifo).
///
/// A function returns the group of a key: its tenant, namespace or host. A group with many
/// ready keys does not delay a group with few. With `g` groups, the first key of a group is
/// delivered after at most `g - 1` others.
///
/// A group without ready keys is forgotten. When one of its keys becomes ready, the group
/// joins at the back of the rotation. Leased keys do not count: a group may have many of
/// them.
///
/// Priorities are ignored. The function is called once each time a key becomes ready, with
/// the queue's lock held. A number or a shared string is a cheaper group than a `String`.
///
/// # Panics
///
/// If the function panics, or `Hash` or `Eq` of the group, the order is unchanged.
///
/// # Examples
///
/// ```
/// use requeue::order::{Fair, Order, Ticket};
///
/// let keys = ["red/1", "red/2", "red/3", "blue/1"];
/// let mut order = Fair::by(|key: &&str| key.split('/').next().map(str::to_owned));
/// for (index, key) in keys.iter().enumerate() {
///     order.push(Ticket::new(index), key, 0);
/// }
/// let delivered = std::iter::from_fn(|| order.pop().map(|ticket| keys[ticket.index()]));
/// assert_eq!(delivered.collect::<Vec<_>>(), ["red/1", "blue/1", "red/2", "red/3"]);
/// ```
pub struct Fair<K, G> {
    group_of: GroupOf<K, G>,
    weight_of: Option<WeightOf<G>>,
    /// By ticket: the slot of its group.
    slots: Column<Option<u32>>,
    members: Links,
    groups: Groups<G>,
}

type GroupOf<K, G> = Box<dyn FnMut(&K) -> G + Send>;
type WeightOf<G> = Box<dyn FnMut(&G) -> u32 + Send>;

/// The groups that have ready keys.
struct Groups<G> {
    hasher: RandomState,
    /// Finds the slot of a group.
    table: HashTable<u32>,
    slots: Vec<Option<Group<G>>>,
    free: Vec<u32>,
    rotation: List,
    links: Links,
}

struct Group<G> {
    name: G,
    hash: u64,
    keys: List,
    /// Deliveries per turn; at least one.
    weight: u32,
    /// Deliveries that are left in this turn.
    left: u32,
}

/// The group of a key that is pushed, found before anything changes.
enum Membership<G> {
    Known(u32),
    New(Group<G>),
}

impl<K, G: Eq + Hash> Fair<K, G> {
    /// Creates an order in which the groups of `group_of` take turns.
    ///
    /// Equal keys must always have the same group.
    pub fn by(group_of: impl FnMut(&K) -> G + Send + 'static) -> Self {
        Self {
            group_of: Box::new(group_of),
            weight_of: None,
            slots: Column::default(),
            members: Links::default(),
            groups: Groups::new(),
        }
    }

    /// Delivers up to `weight_of(group)` keys of a group in each of its turns instead of one.
    ///
    /// The function is called when a group gets its first ready key. A weight of zero counts
    /// as one, so that no group starves.
    ///
    /// # Examples
    ///
    /// ```
    /// use requeue::order::{Fair, Order, Ticket};
    ///
    /// let gold = |key: &u32| *key < 100;
    /// let mut order = Fair::by(gold).weighted(|gold| if *gold { 2 } else { 1 });
    /// let keys = [101, 102, 1, 2, 3];
    /// for (index, key) in keys.iter().enumerate() {
    ///     order.push(Ticket::new(index), key, 0);
    /// }
    /// let delivered = std::iter::from_fn(|| order.pop().map(|ticket| keys[ticket.index()]));
    /// assert_eq!(delivered.collect::<Vec<_>>(), [101, 1, 2, 102, 3]);
    /// ```
    #[must_use]
    pub fn weighted(self, weight_of: impl FnMut(&G) -> u32 + Send + 'static) -> Self {
        Self { weight_of: Some(Box::new(weight_of)), ..self }
    }

    /// Runs all user code that a push needs.
    fn membership(&mut self, key: &K) -> Membership<G> {
        let name = (self.group_of)(key);
        let hash = self.groups.hasher.hash_one(&name);
        if let Some(slot) = self.groups.find(hash, &name) {
            return Membership::Known(slot);
        }
        let weight =
            self.weight_of.as_mut().map_or(1, |weight_of| weight_of(&name)).max(1);
        Membership::New(Group { name, hash, keys: List::default(), weight, left: weight })
    }
}

impl<K, G> Fair<K, G> {
    /// Removes a ready ticket from its group. Returns whether the group still exists.
    fn leave(&mut self, ticket: u32, slot: u32) -> Presence {
        self.slots.take(ticket);
        let group = self.groups.get_mut(slot);
        self.members.unlink(&mut group.keys, ticket);
        if group.keys.is_empty() {
            self.groups.forget(slot); // invariant 2
            return Presence::Forgotten;
        }
        Presence::Known
    }

    fn ready(&self) -> usize {
        self.slots.iter().filter(|(_, group)| group.is_some()).count()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let groups = &self.groups;
        let mut ready = 0;
        for slot in groups.links.iter(&groups.rotation) {
            let group = groups.slots[slot as usize].as_ref().expect("invariant 2: slot");
            assert!(!group.keys.is_empty(), "invariant 2: members");
            assert!((1..=group.weight).contains(&group.left), "invariant 3");
            for ticket in self.members.iter(&group.keys) {
                assert_eq!(self.slots.get(ticket), Some(slot), "invariant 1");
                ready += 1;
            }
        }
        assert_eq!(ready, self.ready(), "invariant 1: count");
        let known = groups.slots.iter().flatten().count();
        assert_eq!(groups.links.iter(&groups.rotation).count(), known, "invariant 2");
        assert_eq!(groups.table.len(), known, "invariant 2: table");
        assert_eq!(groups.free.len() + known, groups.slots.len(), "invariant 2: free");
    }

    #[cfg(test)]
    pub(super) fn capacities(&self) -> [usize; 3] {
        [
            self.slots.capacity(),
            self.groups.slots.capacity(),
            self.groups.table.capacity(),
        ]
    }
}

/// Whether a group still exists after one of its keys was removed.
enum Presence {
    Known,
    Forgotten,
}

impl<G> Groups<G> {
    fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            rotation: List::default(),
            links: Links::default(),
        }
    }

    fn find(&self, hash: u64, name: &G) -> Option<u32>
    where
        G: Eq,
    {
        let same = |slot: &u32| {
            let group = self.slots[*slot as usize].as_ref();
            group.is_some_and(|group| group.hash == hash && group.name == *name)
        };
        self.table.find(hash, same).copied()
    }

    fn get_mut(&mut self, slot: u32) -> &mut Group<G> {
        self.slots[slot as usize].as_mut().expect("invariant 1: a ready key has a group")
    }

    /// Adds a group at the back of the rotation.
    fn join(&mut self, group: Group<G>) -> u32 {
        let hash = group.hash;
        let slot = self.store(group);
        self.table.insert_unique(hash, slot, |slot| hash_at(&self.slots, *slot));
        self.links.push_back(&mut self.rotation, slot);
        slot
    }

    fn store(&mut self, group: Group<G>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(group);
            return slot;
        }
        let slot = u32::try_from(self.slots.len()).expect("fewer groups than ready keys");
        self.slots.push(Some(group));
        slot
    }

    fn forget(&mut self, slot: u32) {
        self.links.unlink(&mut self.rotation, slot);
        let hash = hash_at(&self.slots, slot);
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        let group = self.slots[slot as usize].take();
        contain(|| drop(group));
    }

    /// Counts a delivery of the group that has the turn. The last one ends the turn.
    fn spend(&mut self, slot: u32) {
        let group = self.get_mut(slot);
        group.left -= 1; // invariant 3
        if group.left == 0 {
            group.left = group.weight;
            self.links.unlink(&mut self.rotation, slot);
            self.links.push_back(&mut self.rotation, slot);
        }
    }

    fn shrink(&mut self) {
        let bound =
            self.slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.slots.truncate(bound);
        self.slots.shrink_to_fit();
        self.links.shrink(bound);
        self.free.retain(|slot| (*slot as usize) < bound);
        self.free.shrink_to_fit();
        self.table.shrink_to_fit(|slot| hash_at(&self.slots, *slot));
    }
}

fn hash_at<G>(slots: &[Option<Group<G>>], slot: u32) -> u64 {
    slots[slot as usize].as_ref().expect("invariant 2: the table holds groups").hash
}

impl<K, G: Eq + Hash + Send> Order<K> for Fair<K, G> {
    fn push(&mut self, ticket: Ticket, key: &K, _priority: i32) {
        let slot = match self.membership(key) {
            Membership::Known(slot) => slot,
            Membership::New(group) => self.groups.join(group),
        };
        let before = self.slots.at(ticket.0).replace(slot);
        debug_assert_eq!(before, None, "a ticket is pushed once");
        self.members.push_back(&mut self.groups.get_mut(slot).keys, ticket.0);
    }

    fn pop(&mut self) -> Option<Ticket> {
        let slot = self.groups.rotation.front()?;
        let ticket = self.groups.get_mut(slot).keys.front()?;
        match self.leave(ticket, slot) {
            Presence::Known => self.groups.spend(slot),
            Presence::Forgotten => {}
        }
        Some(Ticket(ticket))
    }

    fn remove(&mut self, ticket: Ticket, _key: &K) {
        if let Some(slot) = self.slots.get(ticket.0) {
            self.leave(ticket.0, slot);
        }
    }

    fn shrink(&mut self) {
        let bound = self.slots.bound();
        self.slots.shrink(bound);
        self.members.shrink(bound);
        self.groups.shrink();
    }
}

impl<K, G> fmt::Debug for Fair<K, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fair")
            .field("ready", &self.ready())
            .field("groups", &self.groups.table.len())
            .finish_non_exhaustive()
    }
}
