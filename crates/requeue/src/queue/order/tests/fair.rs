use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::{Model, Run, histories, pop_all, push_all};
use crate::order::{Fair, Order, Ticket};

/// The rotation, written out: each key is its own group in the tests below.
struct Rotation {
    weight_of: fn(u8) -> u32,
    turns: VecDeque<Turn>,
}

struct Turn {
    group: u8,
    left: u32,
    tickets: Vec<usize>,
}

impl Rotation {
    fn new(weight_of: fn(u8) -> u32) -> Self {
        Self { weight_of, turns: VecDeque::new() }
    }
}

impl Model for Rotation {
    fn push(&mut self, ticket: usize, key: u8, _priority: i32) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.group == key) {
            return turn.tickets.push(ticket);
        }
        let left = (self.weight_of)(key);
        self.turns.push_back(Turn { group: key, left, tickets: vec![ticket] });
    }

    fn touch(&mut self, _ticket: usize, _priority: i32) {}

    fn pop(&mut self) -> Option<usize> {
        let mut turn = self.turns.pop_front()?;
        let ticket = turn.tickets.remove(0);
        turn.left -= 1;
        if turn.tickets.is_empty() {
            return Some(ticket);
        }
        if turn.left == 0 {
            turn.left = (self.weight_of)(turn.group);
            self.turns.push_back(turn);
        } else {
            self.turns.push_front(turn);
        }
        Some(ticket)
    }

    fn remove(&mut self, ticket: usize) {
        for turn in &mut self.turns {
            turn.tickets.retain(|other| *other != ticket);
        }
        self.turns.retain(|turn| !turn.tickets.is_empty());
    }
}

fn by_key() -> Fair<u8, u8> {
    Fair::by(|key: &u8| *key)
}

proptest! {
    #[test]
    fn fair_agrees_with_its_model(history in histories(40, 6, 3)) {
        Run::new(by_key(), Rotation::new(|_| 1)).finish(&history, Fair::check);
    }

    #[test]
    fn weighted_fair_agrees_with_its_model(history in histories(40, 6, 3)) {
        let weight = |group| 1 + u32::from(group) % 3;
        let order = by_key().weighted(move |group| weight(*group));
        Run::new(order, Rotation::new(weight)).finish(&history, Fair::check);
    }
}

#[test]
fn groups_take_turns_and_keys_of_a_group_stay_in_order() {
    let mut order = by_key();
    push_all(&mut order, &[1, 1, 1, 2, 3, 2]);
    assert_eq!(pop_all(&mut order), [0, 3, 4, 1, 5, 2]);
}

#[test]
fn group_that_ran_empty_joins_at_the_back() {
    let mut order = by_key();
    push_all(&mut order, &[1, 2, 2, 3]);
    assert_eq!(order.pop(), Some(Ticket::new(0)));
    order.push(Ticket::new(0), &1, 0);
    assert_eq!(pop_all(&mut order), [1, 3, 0, 2]);
}

#[test]
fn removing_the_only_key_of_the_next_group_passes_its_turn_on() {
    let mut order = by_key();
    push_all(&mut order, &[1, 2, 2, 3]);
    order.remove(Ticket::new(0), &1);
    order.check();
    assert_eq!(pop_all(&mut order), [1, 3, 2]);
}

#[test]
fn removing_a_key_does_not_cost_its_group_a_turn() {
    let mut order = by_key();
    push_all(&mut order, &[1, 2, 1, 2]);
    order.remove(Ticket::new(0), &1);
    assert_eq!(pop_all(&mut order), [2, 1, 3]);
}

#[test]
fn removing_a_key_that_is_not_ready_changes_nothing() {
    let mut order = by_key();
    push_all(&mut order, &[1, 2]);
    assert_eq!(order.pop(), Some(Ticket::new(0)));
    order.remove(Ticket::new(0), &1);
    order.remove(Ticket::new(50), &1);
    order.check();
    assert_eq!(pop_all(&mut order), [1]);
}

#[test]
fn weight_of_zero_counts_as_one() {
    let mut order = by_key().weighted(|group| u32::from(*group));
    push_all(&mut order, &[0, 0, 2, 2, 2]);
    assert_eq!(pop_all(&mut order), [0, 2, 3, 1, 4]);
}

#[test]
fn groups_that_are_gone_take_no_memory() {
    let mut order = Fair::by(|key: &u32| *key);
    for group in 0..10_000 {
        order.push(Ticket::new(0), &group, 0);
        assert_eq!(order.pop(), Some(Ticket::new(0)));
    }
    order.check();
    let capacities = order.capacities();
    assert!(capacities.iter().all(|capacity| *capacity <= 16), "{capacities:?}");
}

#[test]
fn memory_is_given_back_after_a_spike() {
    let mut order = Fair::by(|key: &u32| *key);
    for (index, group) in (0..10_000).enumerate() {
        order.push(Ticket::new(index), &group, 0);
    }
    (3..10_000).for_each(|index| order.remove(Ticket::new(index), &0));
    order.shrink();
    order.check();
    let capacities = order.capacities();
    assert!(capacities.iter().all(|capacity| *capacity <= 16), "{capacities:?}");
    let left: Vec<_> = std::iter::from_fn(|| order.pop().map(Ticket::index)).collect();
    assert_eq!(left, [0, 1, 2]);
}

/// A group whose `Hash` or `Eq` panics for some values.
#[derive(Clone, Copy, Debug)]
struct Touchy(u8);

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert_ne!(self.0, 100, "cannot hash 100");
        0_u8.hash(state);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert_ne!(self.0.max(other.0), 101, "cannot compare 101");
        self.0 == other.0
    }
}

impl Eq for Touchy {}

/// Pushes `key` as ticket 9, which must panic, and checks that nothing has changed.
fn panics_and_leaves_all_as_it_was(mut order: Fair<u8, Touchy>, key: u8) {
    push_all(&mut order, &[1, 1, 2]);
    let push = AssertUnwindSafe(|| order.push(Ticket::new(9), &key, 0));
    assert!(catch_unwind(push).is_err());
    order.check();
    order.push(Ticket::new(9), &2, 0);
    order.check();
    assert_eq!(pop_all(&mut order), [0, 2, 1, 9]);
}

#[test]
fn panicking_group_function_leaves_the_order_intact() {
    let group_of = |key: &u8| {
        assert_ne!(*key, 50, "no group for 50");
        Touchy(*key)
    };
    panics_and_leaves_all_as_it_was(Fair::by(group_of), 50);
}

#[test]
fn panicking_weight_leaves_the_order_intact() {
    let weight_of = |group: &Touchy| {
        assert_ne!(group.0, 50, "no weight for 50");
        1
    };
    let order = Fair::by(|key: &u8| Touchy(*key)).weighted(weight_of);
    panics_and_leaves_all_as_it_was(order, 50);
}

#[test]
fn panicking_hash_or_eq_of_a_group_leaves_the_order_intact() {
    panics_and_leaves_all_as_it_was(Fair::by(|key: &u8| Touchy(*key)), 100);
    panics_and_leaves_all_as_it_was(Fair::by(|key: &u8| Touchy(*key)), 101);
}

#[test]
fn debug_shows_counts_only() {
    let mut order = by_key();
    push_all(&mut order, &[1, 1, 2]);
    assert_eq!(format!("{order:?}"), "Fair { ready: 3, groups: 2, .. }");
}
