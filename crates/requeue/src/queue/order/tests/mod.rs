//! Every order against a naive model: the same calls, the same deliveries.

mod fair;
mod fifo;
mod priority;

use proptest::prelude::*;

use super::{Order, Ticket};

/// The simplest thing that could be right, on plain vectors.
trait Model {
    fn push(&mut self, ticket: usize, key: u8, priority: i32);
    fn touch(&mut self, ticket: usize, priority: i32);
    fn pop(&mut self) -> Option<usize>;
    fn remove(&mut self, ticket: usize);
}

#[derive(Clone, Debug)]
enum Op {
    /// Pushes the ticket, or touches it if it is ready.
    Add {
        ticket: usize,
        key: u8,
        priority: i32,
    },
    Pop,
    Remove {
        ticket: usize,
    },
    Shrink,
}

/// Histories over `tickets` tickets; `pops` and `removals` are weights beside 8 for adds.
fn histories(tickets: usize, pops: u32, removals: u32) -> impl Strategy<Value = Vec<Op>> {
    let add = (0..tickets, 0..6u8, -2..3i32);
    let op = prop_oneof![
        8 => add.prop_map(|(ticket, key, priority)| Op::Add { ticket, key, priority }),
        pops => Just(Op::Pop),
        removals => (0..tickets).prop_map(|ticket| Op::Remove { ticket }),
        1 => Just(Op::Shrink),
    ];
    prop::collection::vec(op, 0..300)
}

/// A history under way: what the queue knows of its ready keys.
struct Run<O, M> {
    order: O,
    model: M,
    /// By ticket: key and priority of a ready key.
    ready: Vec<Option<(u8, i32)>>,
}

impl<O: Order<u8>, M: Model> Run<O, M> {
    fn new(order: O, model: M) -> Self {
        Self { order, model, ready: vec![None; 256] }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Add { ticket, key, priority } => self.add(ticket, key, priority),
            Op::Pop => {
                self.pop();
            }
            Op::Remove { ticket } => self.remove(ticket),
            Op::Shrink => self.order.shrink(),
        }
    }

    fn add(&mut self, ticket: usize, key: u8, priority: i32) {
        if let Some((key, before)) = self.ready[ticket] {
            let priority = priority.max(before);
            self.ready[ticket] = Some((key, priority));
            self.order.touch(Ticket::new(ticket), &key, priority);
            self.model.touch(ticket, priority);
        } else {
            self.ready[ticket] = Some((key, priority));
            self.order.push(Ticket::new(ticket), &key, priority);
            self.model.push(ticket, key, priority);
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let popped = self.order.pop().map(Ticket::index);
        assert_eq!(popped, self.model.pop());
        let key = popped.map(|ticket| self.ready[ticket].take());
        assert_ne!(key, Some(None), "a key was popped that is not ready");
        popped
    }

    fn remove(&mut self, ticket: usize) {
        if let Some((key, _)) = self.ready[ticket].take() {
            self.order.remove(Ticket::new(ticket), &key);
            self.model.remove(ticket);
        }
    }

    /// Runs the whole history, then pops what is left.
    fn finish(mut self, history: &[Op], check: impl Fn(&O)) {
        for op in history {
            self.apply(op);
            check(&self.order);
        }
        while self.pop().is_some() {
            check(&self.order);
        }
        assert_eq!(self.ready.iter().flatten().count(), 0, "a key was never popped");
    }
}

/// Pushes keys of one ticket each, with priority zero.
fn push_all(order: &mut impl Order<u8>, keys: &[u8]) {
    for (index, key) in keys.iter().enumerate() {
        order.push(Ticket::new(index), key, 0);
    }
}

/// Pops everything.
fn pop_all(order: &mut impl Order<u8>) -> Vec<usize> {
    std::iter::from_fn(|| order.pop().map(Ticket::index)).collect()
}

#[test]
fn boxed_order_does_what_the_order_inside_does() {
    let mut boxed: Box<dyn Order<u8>> = Box::new(super::Priority::strict());
    push_all(&mut boxed, &[0, 1, 2]);
    boxed.touch(Ticket::new(2), &2, 5);
    boxed.remove(Ticket::new(0), &0);
    boxed.shrink();
    assert_eq!(pop_all(&mut boxed), [2, 1]);
}
