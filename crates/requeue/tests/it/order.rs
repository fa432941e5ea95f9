//! Queues with an order: by priority, round-robin, and custom ones.

use requeue::order::{Fair, Order, Priority, Ticket};
use requeue::{AddOptions, Added, Counts, Queue, TryGetError};

use crate::helpers::{Task, finished, ms, secs, take_all, timed_with};

fn level(priority: i32) -> AddOptions {
    AddOptions::new().priority(priority)
}

#[test]
fn highest_priority_comes_first_and_equal_ones_in_order() {
    let queue = Queue::builder().order(Priority::new()).build();
    for (key, priority) in [("a", 0), ("b", -100), ("c", 10), ("d", 0), ("e", 10)] {
        assert_eq!(queue.add_with(key, level(priority)), Ok(Added::Ready));
    }
    assert_eq!(take_all(&queue), ["c", "e", "a", "d", "b"]);
}

#[test]
fn lease_knows_the_priority_of_its_key() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add_with("a", level(-7)).unwrap();
    queue.add("b").unwrap();
    let b = queue.try_get().unwrap();
    let a = queue.try_get().unwrap();
    assert_eq!((*b, b.priority()), ("b", 0));
    assert_eq!((*a, a.priority()), ("a", -7));
}

#[test]
fn priority_is_not_lowered_by_adding_again() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add_with("a", level(5)).unwrap();
    queue.add_with("b", level(1)).unwrap();
    assert_eq!(queue.add("a"), Ok(Added::Duplicate));
    queue.add_with("a", level(-5)).unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!((*lease, lease.priority()), ("a", 5));
}

#[test]
fn raised_key_goes_to_the_end_of_its_new_level() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add("first").unwrap();
    queue.add_with("a", level(5)).unwrap();
    queue.add_with("b", level(5)).unwrap();
    queue.add_with("first", level(5)).unwrap();
    assert_eq!(take_all(&queue), ["a", "b", "first"]);
}

#[test]
fn key_added_again_with_the_same_priority_keeps_its_position() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add_with("a", level(5)).unwrap();
    queue.add_with("b", level(5)).unwrap();
    queue.add_with("a", level(5)).unwrap();
    assert_eq!(take_all(&queue), ["a", "b"]);
}

#[test]
fn retry_keeps_the_priority() {
    let (queue, clock) = timed_with(Queue::builder().order(Priority::new()));
    queue.add_with("a", level(5)).unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(ms(5));
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.priority(), 5);
    lease.retry_after(secs(1));
    clock.advance(secs(1));
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.priority(), 5);
    lease.succeed();
    queue.add("a").unwrap();
    assert_eq!(queue.try_get().unwrap().priority(), 0, "a new start");
}

#[test]
fn dirty_key_is_delivered_with_the_priority_of_its_last_add() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add_with("a", level(5)).unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_with("a", level(1)).unwrap();
    queue.add_with("a", level(3)).unwrap();
    queue.add_with("b", level(4)).unwrap();
    lease.done();
    let leases = queue.try_get_many(2).unwrap();
    assert_eq!(leases.keys().copied().collect::<Vec<_>>(), ["b", "a"]);
    let priorities: Vec<_> = leases.into_iter().map(|lease| lease.priority()).collect();
    assert_eq!(priorities, [4, 3]);
}

#[test]
fn delayed_key_has_its_priority_when_it_is_due() {
    let (queue, clock) = timed_with(Queue::builder().order(Priority::new()));
    queue.add_with("low", level(-1).after(secs(1))).unwrap();
    queue.add_with("high", level(9).after(secs(2))).unwrap();
    queue.add_after("default", secs(1)).unwrap();
    queue.add("ready").unwrap();
    assert_eq!(take_all(&queue), ["ready"]);
    queue.add("ready").unwrap();
    clock.advance(secs(2));
    assert_eq!(take_all(&queue), ["high", "ready", "default", "low"]);
}

/// A key that was neither ready nor delayed once got the lowest possible priority when it was
/// postponed.
#[test]
fn postponed_key_keeps_its_priority_and_has_zero_if_it_had_none() {
    let (queue, clock) = timed_with(Queue::builder().order(Priority::new()));
    queue.add_with("known", level(-3)).unwrap();
    queue.postpone("known", secs(1)).unwrap();
    queue.postpone("new", secs(1)).unwrap();
    clock.advance(secs(1));
    let (new, known) = (queue.try_get().unwrap(), queue.try_get().unwrap());
    assert_eq!((*new, new.priority()), ("new", 0));
    assert_eq!((*known, known.priority()), ("known", -3));
}

/// A delayed add that a ready key absorbed once raised the priority of the lease, but did not
/// move the key. controller-runtime moves it.
#[test]
fn absorbed_delay_raises_the_priority_of_a_ready_key() {
    let builder = Queue::builder().order(Priority::new()).absorb_delays(true);
    let (queue, _clock) = timed_with(builder);
    queue.add_all(["a", "b"]).unwrap();
    queue.add_with("b", level(7).after(secs(5))).unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!((*lease, lease.priority()), ("b", 7));
}

#[test]
fn low_priority_does_not_wait_forever() {
    let queue = Queue::builder().order(Priority::ageing(10)).build();
    queue.add_with(0, level(-100)).unwrap();
    let mut delivered = Vec::new();
    for key in 1..=30 {
        queue.add_with(key, level(1)).unwrap();
        queue.add_with(-key, level(1)).unwrap();
        delivered.push(finished(queue.try_get().unwrap()));
    }
    assert_eq!(delivered.iter().position(|key| *key == 0), Some(10));
}

#[test]
fn strict_priority_lets_low_ones_wait() {
    let queue = Queue::builder().order(Priority::strict()).build();
    queue.add_with(0, level(-100)).unwrap();
    for key in 1..=1000 {
        queue.add(key).unwrap();
        assert_eq!(finished(queue.try_get().unwrap()), key);
    }
    assert_eq!(take_all(&queue), [0]);
}

#[test]
fn removing_and_closing_keep_the_order_consistent() {
    let queue = Queue::builder().order(Priority::new()).build();
    for key in 0..10 {
        queue.add_with(key, level(key % 3)).unwrap();
    }
    for key in [2, 4, 9] {
        assert!(queue.remove(&key));
    }
    assert_eq!(queue.close_now(), [5, 8, 1, 7, 0, 3, 6]);
}

#[test]
fn groups_take_turns() {
    let group = |key: &&str| key.split('/').next().map(str::to_owned);
    let queue = Queue::builder().order(Fair::by(group)).build();
    queue.add_all(["red/1", "red/2", "red/3", "blue/1", "blue/2"]).unwrap();
    let expected = ["red/1", "blue/1", "red/2", "blue/2", "red/3"];
    assert_eq!(take_all(&queue), expected);
}

#[test]
fn retried_key_waits_for_the_turn_of_its_group() {
    let queue = Queue::builder().order(Fair::by(|key: &u32| key / 10)).build();
    queue.add_all([1, 2, 3, 11]).unwrap();
    queue.try_get().unwrap().retry_after(secs(0));
    assert_eq!(take_all(&queue), [11, 2, 3, 1]);
}

/// The newest key first.
#[derive(Default)]
struct Lifo(Vec<Ticket>);

impl<K> Order<K> for Lifo {
    fn push(&mut self, ticket: Ticket, _: &K, _: i32) {
        self.0.push(ticket);
    }

    fn touch(&mut self, ticket: Ticket, key: &K, priority: i32) {
        Order::<K>::remove(self, ticket, key);
        self.push(ticket, key, priority);
    }

    fn pop(&mut self) -> Option<Ticket> {
        self.0.pop()
    }

    fn remove(&mut self, ticket: Ticket, _: &K) {
        self.0.retain(|other| *other != ticket);
    }
}

#[test]
fn custom_order_decides() {
    let queue = Queue::builder().order(Lifo::default()).build();
    queue.add_all(["a", "b", "c"]).unwrap();
    queue.add("b").unwrap();
    queue.remove("c");
    assert_eq!(take_all(&queue), ["b", "a"]);
    queue.add("d").unwrap();
    assert_eq!(queue.close_now(), ["d"]);
}

/// An order that returns every ticket twice, and tickets that were never pushed.
#[derive(Default)]
struct Liar(Vec<Ticket>);

impl<K> Order<K> for Liar {
    fn push(&mut self, ticket: Ticket, _: &K, _: i32) {
        self.0.extend([Ticket::new(12345), ticket, Ticket::new(7), ticket]);
    }

    fn pop(&mut self) -> Option<Ticket> {
        self.0.pop()
    }

    fn remove(&mut self, _: Ticket, _: &K) {}
}

#[test]
fn order_that_returns_keys_that_are_not_ready_does_no_harm() {
    let (queue, clock) = timed_with(Queue::builder().order(Liar::default()));
    queue.add_all(["a", "b", "c"]).unwrap();
    assert!(queue.remove("b"));
    let lease = queue.try_get().unwrap();
    assert_eq!(*lease, "c");
    queue.add("c").unwrap();
    let other = queue.try_get().unwrap();
    assert_eq!(*other, "a", "c is processing, b was removed");
    queue.add_after("d", secs(1)).unwrap();
    clock.advance(secs(1));
    lease.done();
    other.done();
    let mut rest = take_all(&queue);
    rest.sort_unstable();
    assert_eq!(rest, ["c", "d"]);
    assert_eq!(queue.counts(), Counts::default());
}

/// An order that loses every key.
struct Sieve;

impl<K> Order<K> for Sieve {
    fn push(&mut self, _: Ticket, _: &K, _: i32) {}

    fn pop(&mut self) -> Option<Ticket> {
        None
    }

    fn remove(&mut self, _: Ticket, _: &K) {}
}

#[test]
fn order_that_loses_keys_does_not_hang_the_queue() {
    let queue = Queue::builder().order(Sieve).build();
    queue.add_all(["a", "b"]).unwrap();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert!(queue.remove("a"));
    queue.close();
    assert!(queue.get_blocking().is_none());
    assert_eq!(
        queue.drain_blocking_timeout(secs(0)).unwrap(),
        ["b"],
        "the queue still has it"
    );
}

/// A waiting getter once called such an order half a million times per second.
#[test]
fn getter_does_not_spin_while_the_order_withholds_keys() {
    let queue = Queue::builder().order(Sieve).build();
    let mut getter = Task::parked(queue.get());
    for round in 1..=3 {
        queue.add(round).unwrap();
        assert_eq!(getter.wakes(), round, "it looks once for each key that is added");
        assert!(getter.poll().is_pending());
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(queue.close_now(), [1, 2, 3]);
}

/// An order that returns one key forever.
struct Broken;

impl<K> Order<K> for Broken {
    fn push(&mut self, _: Ticket, _: &K, _: i32) {}

    fn pop(&mut self) -> Option<Ticket> {
        Some(Ticket::new(7))
    }

    fn remove(&mut self, _: Ticket, _: &K) {}
}

#[test]
fn order_that_never_returns_a_ready_key_does_not_hang_the_queue() {
    let queue = Queue::builder().order(Broken).build();
    queue.add("a").unwrap();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert_eq!(queue.close_now(), ["a"]);
}

/// The priority of a delay is separate. It once changed that of the ready key.
#[test]
fn delay_does_not_change_the_priority_of_a_ready_key() {
    let (queue, clock) = timed_with(Queue::builder().order(Priority::strict()));
    queue.add_with("K", level(-3)).unwrap();
    queue.add_with("K", level(5).after(secs(1))).unwrap();
    queue.add("L").unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!((*lease, lease.priority()), ("L", 0), "K is still at -3");
    lease.done();
    let lease = queue.try_get().unwrap();
    assert_eq!((*lease, lease.priority()), ("K", -3));
    lease.done();
    clock.advance(secs(1));
    let lease = queue.try_get().unwrap();
    assert_eq!((*lease, lease.priority()), ("K", 5));
}

#[test]
fn delay_of_a_dirty_key_does_not_change_its_priority() {
    let (queue, clock) = timed_with(Queue::builder().order(Priority::strict()));
    queue.add_with("K", level(1)).unwrap();
    let first = queue.try_get().unwrap();
    queue.add_with("K", level(-3)).unwrap();
    queue.add_with("K", level(5).after(secs(1))).unwrap();
    first.done();
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.priority(), -3);
    clock.advance(secs(1));
    assert_eq!(queue.counts().dirty, 1);
    lease.done();
    assert_eq!(queue.try_get().unwrap().priority(), 5);
}

#[test]
fn postponed_key_keeps_the_higher_of_its_priorities() {
    let (queue, clock) = timed_with(Queue::builder().order(Priority::strict()));
    queue.add_with("K", level(-3)).unwrap();
    queue.add_with("K", level(5).after(secs(1))).unwrap();
    queue.postpone("K", secs(2)).unwrap();
    queue.postpone("new", secs(2)).unwrap();
    clock.advance(secs(2));
    let leases = [queue.try_get().unwrap(), queue.try_get().unwrap()];
    let levels = leases.iter().map(|lease| (**lease, lease.priority()));
    assert_eq!(levels.collect::<Vec<_>>(), [("K", 5), ("new", 0)]);
}

#[test]
fn add_that_absorbs_a_delay_gets_its_priority() {
    let builder = Queue::builder().order(Priority::strict()).absorb_delays(true);
    let (queue, _clock) = timed_with(builder);
    queue.add_with("K", level(5).after(secs(1))).unwrap();
    queue.add_with("K", level(-3)).unwrap();
    assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.priority(), 5);
    queue.add_with("K", level(-7).after(secs(1))).unwrap();
    lease.done();
    queue.add_with("K", level(-9)).unwrap();
    assert_eq!(queue.try_get().unwrap().priority(), -7, "the 5 was used up");
}
