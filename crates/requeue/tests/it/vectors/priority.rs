//! controller-runtime's priority queue.

use std::collections::HashMap;

use requeue::order::Priority;
use requeue::testing::FakeClock;
use requeue::{AddOptions, Lease, Queue};
use serde_json::{Value, json};

use super::{Step, decision, histories, steps};

#[test]
fn priorities_are_kept_as_in_controller_runtime() {
    let mut differences = Vec::new();
    for (number, history) in histories("priority.jsonl").iter().enumerate() {
        let rows: Vec<Step<'_>> = steps(history).collect();
        let mut replay = Replay::new();
        if let Some(decision) = decision(history) {
            replay.differs(decision, &rows);
            differences.push(decision);
        } else {
            replay.all(&rows, &format!("priority queue {number}"));
        }
    }
    assert_eq!(differences, [3, 11]);
}

#[test]
fn priorities_are_kept_without_reading_the_length() {
    for (number, history) in histories("priority.jsonl").iter().enumerate() {
        if decision(history).is_none() {
            let mut replay = Replay::new();
            for step in steps(history) {
                replay.call(&step, &format!("priority queue {number}, {:?}", step.0));
            }
        }
    }
}

struct Replay {
    clock: FakeClock,
    queue: Queue<u32>,
    held: HashMap<u32, Lease<u32>>,
}

impl Replay {
    /// controller-runtime has no ageing, and an add cancels a delay.
    fn new() -> Self {
        let clock = FakeClock::new();
        let queue = Queue::builder()
            .clock(clock.clone())
            .order(Priority::strict())
            .absorb_delays(true)
            .build();
        Self { clock, queue, held: HashMap::new() }
    }

    fn all(&mut self, rows: &[Step<'_>], queue: &str) {
        for step in rows {
            let row = format!("{queue}, {:?}", step.0);
            self.call(step, &row);
            assert_eq!(self.queue.len(), step.len(), "{row}");
        }
    }

    fn call(&mut self, step: &Step<'_>, row: &str) {
        match step.call() {
            "add" => {
                let options =
                    AddOptions::new().priority(step.int(2)).after(step.nanos(3));
                self.queue.add_with(step.int(1), options).unwrap();
            }
            "get" => {
                assert_eq!(self.get(), (step.0[1].clone(), step.0[2].clone()), "{row}");
            }
            "done" => self.held.remove(&step.int(1)).expect(row).done(),
            "advance" => self.clock.advance(step.nanos(1)),
            call => panic!("no such call: {call}"),
        }
    }

    /// Returns key and priority, or two nulls if a get would block.
    fn get(&mut self) -> (Value, Value) {
        let Ok(lease) = self.queue.try_get() else {
            return (Value::Null, Value::Null);
        };
        let answer = (json!(*lease), json!(lease.priority()));
        assert!(self.held.insert(*lease, lease).is_none(), "held twice: {answer:?}");
        answer
    }

    /// Decision 3: a key that was added while processing goes to the tail when its lease
    /// ends. Go keeps the place of the add, and counts the key as ready until then.
    /// Decision 11: keys of one priority are delivered in the order in which they became
    /// ready. In Go, a delayed key that an add makes ready has the place of its first add.
    fn differs(&mut self, decision: u64, rows: &[Step<'_>]) {
        let (calls, gets) = rows.split_at(rows.len() - 2);
        for step in calls {
            self.call(step, &format!("decision {decision}, {:?}", step.0));
        }
        let go: Vec<Value> = gets.iter().map(|step| step.0[1].clone()).collect();
        let here: Vec<Value> = gets.iter().map(|_| self.get().0).collect();
        assert_eq!(go, [json!(0), json!(1)], "decision {decision}");
        assert_eq!(here, [json!(1), json!(0)], "decision {decision}");
    }
}
