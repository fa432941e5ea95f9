use std::cmp::Reverse;

use proptest::prelude::*;

use super::{Model, Run, histories, pop_all, push_all};
use crate::order::{Order, Priority, Ticket};

/// All ready keys in the order they became ready.
#[derive(Default)]
struct Aged {
    limit: Option<u32>,
    passed: u32,
    entries: u64,
    keys: Vec<Key>,
}

struct Key {
    ticket: usize,
    priority: i32,
    /// Its number among all entries into any level.
    entry: u64,
}

impl Aged {
    fn enter(&mut self) -> u64 {
        self.entries += 1;
        self.entries
    }

    fn take(&mut self, at: usize) -> usize {
        if at == 0 {
            self.passed = 0;
        }
        self.keys.remove(at).ticket
    }
}

impl Model for Aged {
    fn push(&mut self, ticket: usize, _key: u8, priority: i32) {
        let entry = self.enter();
        self.keys.push(Key { ticket, priority, entry });
    }

    fn touch(&mut self, ticket: usize, priority: i32) {
        let entry = self.enter();
        let key = self.keys.iter_mut().find(|key| key.ticket == ticket).unwrap();
        if key.priority < priority {
            (key.priority, key.entry) = (priority, entry);
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let keys = self.keys.iter().enumerate();
        let (first, _) =
            keys.min_by_key(|(_, key)| (Reverse(key.priority), key.entry))?;
        let overdue = self.limit.is_some_and(|limit| self.passed >= limit);
        let at = if overdue { 0 } else { first };
        self.passed += 1;
        Some(self.take(at))
    }

    fn remove(&mut self, ticket: usize) {
        let at = self.keys.iter().position(|key| key.ticket == ticket).unwrap();
        self.take(at);
    }
}

proptest! {
    #[test]
    fn priority_agrees_with_its_model(
        limit in prop::option::of(0..6_u32),
        history in histories(40, 6, 2),
    ) {
        let order = limit.map_or_else(Priority::strict, Priority::ageing);
        Run::new(order, Aged { limit, ..Aged::default() }).finish(&history, Priority::check);
    }

    #[test]
    fn no_key_is_passed_over_more_often_than_promised(
        limit in 0..4_u32,
        history in histories(12, 8, 1),
    ) {
        let mut run = Run::new(
            Priority::ageing(limit),
            Aged { limit: Some(limit), ..Aged::default() },
        );
        // By ticket: deliveries that a ready key may still wait for.
        let mut patience = [None; 12];
        for op in history {
            match op {
                super::Op::Add { ticket, .. } if patience[ticket].is_none() => {
                    let older = u32::try_from(run.model.keys.len()).unwrap();
                    patience[ticket] = Some((older + 1) * (limit + 1));
                }
                super::Op::Remove { ticket } => patience[ticket] = None,
                super::Op::Add { .. } | super::Op::Pop | super::Op::Shrink => {}
            }
            if let super::Op::Pop = op {
                if let Some(ticket) = run.pop() {
                    prop_assert_ne!(patience[ticket].take(), Some(0));
                }
                for left in patience.iter_mut().flatten() {
                    prop_assert!(*left > 0, "a key starved");
                    *left -= 1;
                }
            } else {
                run.apply(&op);
            }
        }
    }
}

/// Pushes a key for each priority, its ticket being its place in the list.
fn order_of(mut order: Priority, priorities: &[i32]) -> Priority {
    for (index, priority) in priorities.iter().enumerate() {
        order.push(Ticket::new(index), &0_u8, *priority);
    }
    order
}

#[test]
fn higher_priority_goes_first_and_equal_ones_in_order() {
    let mut order = order_of(Priority::new(), &[0, 5, -100, 5, 0, i32::MAX, i32::MIN]);
    assert_eq!(pop_all(&mut order), [5, 1, 3, 0, 4, 2, 6]);
}

#[test]
fn raised_key_goes_to_the_end_of_its_new_level() {
    let mut order = order_of(Priority::new(), &[0, 3, 3]);
    order.touch(Ticket::new(0), &0_u8, 3);
    assert_eq!(pop_all(&mut order), [1, 2, 0]);
}

#[test]
fn key_added_again_with_the_same_priority_keeps_its_place() {
    let mut order = order_of(Priority::new(), &[3, 3]);
    order.touch(Ticket::new(0), &0_u8, 3);
    assert_eq!(pop_all(&mut order), [0, 1]);
}

#[test]
fn priority_never_sinks() {
    let mut order = order_of(Priority::new(), &[3, 2]);
    order.touch(Ticket::new(0), &0_u8, -5);
    assert_eq!(pop_all(&mut order), [0, 1]);
}

/// Keeps one key of priority 1 ready beside the old ones; says which keys went out.
fn under_load(order: &mut Priority, hand_outs: usize) -> Vec<usize> {
    let fresh = Ticket::new(99);
    let mut popped = Vec::new();
    order.push(fresh, &0_u8, 1);
    for _ in 0..hand_outs {
        let ticket = Order::<u8>::pop(order).expect("a key is ready");
        popped.push(ticket.index());
        if ticket == fresh {
            order.push(fresh, &0_u8, 1);
        }
    }
    popped
}

#[test]
fn oldest_key_is_passed_over_256_times_and_no_more() {
    let mut order = order_of(Priority::new(), &[-100, -100]);
    let popped = under_load(&mut order, 514);
    let old: Vec<_> = popped.iter().enumerate().filter(|(_, key)| **key != 99).collect();
    assert_eq!(old, [(256, &0), (513, &1)]);
}

#[test]
fn strict_order_lets_a_low_priority_wait_for_ever() {
    let mut order = order_of(Priority::strict(), &[-100]);
    assert!(under_load(&mut order, 10_000).iter().all(|key| *key == 99));
}

#[test]
fn ageing_of_zero_is_first_come_first_served() {
    let mut order = order_of(Priority::ageing(0), &[1, 5, -3, 9]);
    assert_eq!(pop_all(&mut order), [0, 1, 2, 3]);
}

#[test]
fn passes_count_anew_when_the_oldest_key_is_removed() {
    let mut order = order_of(Priority::ageing(2), &[-1, -1, 1, 1, 1, 1]);
    assert_eq!(Order::<u8>::pop(&mut order), Some(Ticket::new(2)));
    order.remove(Ticket::new(0), &0_u8);
    assert_eq!(pop_all(&mut order), [3, 4, 1, 5]);
}

#[test]
fn removing_a_key_that_is_not_ready_changes_nothing() {
    let mut order = order_of(Priority::new(), &[1, 2]);
    order.remove(Ticket::new(7), &0_u8);
    assert_eq!(Order::<u8>::pop(&mut order), Some(Ticket::new(1)));
    order.remove(Ticket::new(1), &0_u8);
    order.check();
    assert_eq!(pop_all(&mut order), [0]);
}

#[test]
fn memory_is_given_back_after_a_spike() {
    let mut order = Priority::new();
    push_all(&mut order, &[0; 10_000]);
    (3..10_000).for_each(|index| order.remove(Ticket::new(index), &0_u8));
    Order::<u8>::shrink(&mut order);
    order.check();
    assert!(order.capacity() <= 16, "room for {} keys", order.capacity());
    assert_eq!(pop_all(&mut order), [0, 1, 2]);
}

#[test]
fn debug_shows_counts_only() {
    let order = order_of(Priority::new(), &[1, 1, 2]);
    assert_eq!(
        format!("{order:?}"),
        "Priority { ready: 3, levels: 2, passes: Some(256), .. }"
    );
}
