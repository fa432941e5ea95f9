use proptest::prelude::*;

use super::{Model, Run, histories, pop_all, push_all};
use crate::order::{Fifo, Order, Ticket};

impl Model for Vec<usize> {
    fn push(&mut self, ticket: usize, _key: u8, _priority: i32) {
        Vec::push(self, ticket);
    }

    fn touch(&mut self, _ticket: usize, _priority: i32) {}

    fn pop(&mut self) -> Option<usize> {
        if self.is_empty() { None } else { Some(Vec::remove(self, 0)) }
    }

    fn remove(&mut self, ticket: usize) {
        self.retain(|other| *other != ticket);
    }
}

proptest! {
    #[test]
    fn fifo_agrees_with_its_model(history in histories(200, 2, 4)) {
        Run::new(Fifo::new(), Vec::new()).finish(&history, Fifo::check);
    }

    #[test]
    fn fifo_counts_its_keys(history in histories(100, 3, 3)) {
        let mut run = Run::new(Fifo::new(), Vec::new());
        for op in &history {
            run.apply(op);
            prop_assert_eq!(run.order.len(), run.model.len());
            prop_assert_eq!(run.order.is_empty(), run.model.is_empty());
        }
    }
}

fn remove(fifo: &mut Fifo, index: usize) {
    fifo.remove(Ticket::new(index), &0_u8);
    fifo.check();
}

#[test]
fn keys_come_out_in_the_order_they_became_ready() {
    let mut fifo = Fifo::new();
    push_all(&mut fifo, &[0; 5]);
    fifo.touch(Ticket::new(3), &0_u8, 100);
    assert_eq!(pop_all(&mut fifo), [0, 1, 2, 3, 4]);
}

#[test]
fn removed_keys_are_not_popped() {
    let mut fifo = Fifo::new();
    push_all(&mut fifo, &[0; 100]);
    (0..100).filter(|index| index % 3 == 0).for_each(|index| remove(&mut fifo, index));
    assert_eq!(fifo.len(), 66);
    let expected: Vec<_> = (0..100).filter(|index| index % 3 != 0).collect();
    assert_eq!(pop_all(&mut fifo), expected);
}

#[test]
fn removing_a_key_that_is_not_ready_changes_nothing() {
    let mut fifo = Fifo::new();
    push_all(&mut fifo, &[0; 50]);
    remove(&mut fifo, 7);
    remove(&mut fifo, 7);
    remove(&mut fifo, 200);
    assert_eq!(Order::<u8>::pop(&mut fifo), Some(Ticket::new(0)));
    remove(&mut fifo, 0);
    assert_eq!(fifo.len(), 48);
}

#[test]
fn memory_is_given_back_after_a_spike() {
    let mut fifo = Fifo::new();
    push_all(&mut fifo, &[0; 10_000]);
    (0..9_990).for_each(|index| fifo.take_out(Ticket::new(index)));
    Order::<u8>::shrink(&mut fifo);
    fifo.check();
    assert_eq!(pop_all(&mut fifo), (9_990..10_000).collect::<Vec<_>>());
    Order::<u8>::shrink(&mut fifo);
    assert_eq!(fifo.capacity(), 0);
}

#[test]
fn debug_shows_counts_only() {
    let mut fifo = Fifo::new();
    push_all(&mut fifo, &[0; 3]);
    assert_eq!(format!("{fifo:?}"), "Fifo { ready: 3, .. }");
}
