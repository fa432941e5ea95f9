//! client-go's rate-limiting queue.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use requeue::testing::FakeClock;
use requeue::{Lease, Queue, TryGetError};
use serde_json::{Value, json};

use super::policies::policy;
use super::{Step, decision, histories, steps};

#[test]
fn queue_answers_as_in_go() {
    let mut differences = Vec::new();
    for (number, history) in histories("queue.jsonl").iter().enumerate() {
        let rows: Vec<Step<'_>> = steps(history).collect();
        let mut replay = Replay::new(history, Len::EachRow);
        if let Some(decision) = decision(history) {
            replay.differs(decision, &rows);
            differences.push(decision);
        } else {
            replay.all(&rows, &format!("queue {number}"));
        }
    }
    assert_eq!(differences, [5, 6, 7]);
}

/// `len` moves due keys. Called after each row, it hid that other calls did not.
#[test]
fn queue_answers_as_in_go_without_reading_its_length() {
    for (number, history) in histories("queue.jsonl").iter().enumerate() {
        if decision(history).is_none() {
            let rows: Vec<Step<'_>> = steps(history).collect();
            let mut replay = Replay::new(history, Len::Never);
            replay.all(&rows, &format!("queue {number} without len"));
        }
    }
}

/// Whether a replay compares the length of the queue after each row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Len {
    EachRow,
    Never,
}

struct Replay {
    clock: FakeClock,
    queue: Queue<u32>,
    held: HashMap<u32, Lease<u32>>,
    len: Len,
}

impl Replay {
    fn new(history: &Value, len: Len) -> Self {
        let clock = FakeClock::new();
        let queue = Queue::builder()
            .clock(clock.clone())
            .retry(policy(&history["policy"], &clock))
            .build();
        Self { clock, queue, held: HashMap::new(), len }
    }

    fn all(&mut self, steps: &[Step<'_>], queue: &str) {
        for step in steps {
            let row = format!("{queue}, {:?}", step.0);
            self.call(step, &row);
            if self.len == Len::EachRow {
                assert_eq!(self.queue.len(), step.len(), "{row}");
            }
        }
    }

    fn call(&mut self, step: &Step<'_>, row: &str) {
        match step.call() {
            // Go ignores an add to a closed queue.
            "add" => drop(self.queue.add(step.int(1))),
            "add_after" => drop(self.queue.add_after(step.int(1), step.nanos(2))),
            "add_rate_limited" => drop(self.queue.add_rate_limited(step.int(1))),
            "get" => assert_eq!(self.get(), step.0[1], "{row}"),
            "done" => self.held.remove(&step.int(1)).expect(row).done(),
            "forget" => self.queue.forget(&step.int(1)),
            "requeues" => {
                let requeues = self.queue.num_requeues(&step.int(1));
                assert_eq!(requeues, step.int::<u32>(2), "{row}");
            }
            "advance" => self.clock.advance(step.nanos(1)),
            "shut_down" => {
                self.queue.close();
                assert!(self.queue.is_closed(), "{row}");
            }
            call => panic!("no such call: {call}"),
        }
    }

    /// Returns null if a get would block.
    fn get(&mut self) -> Value {
        match self.queue.try_get() {
            Ok(lease) => {
                let key = *lease;
                assert!(self.held.insert(key, lease).is_none(), "{key} is held twice");
                json!(key)
            }
            Err(TryGetError::Closed) => json!("closed"),
            Err(_) => Value::Null,
        }
    }

    fn differs(&mut self, decision: u64, rows: &[Step<'_>]) {
        let (same, check): (_, fn(&mut Self, &[Step<'_>])) = match decision {
            5 => (7, Self::ties_come_in_the_order_they_were_added),
            6 => (3, Self::drain_waits_for_ready_keys),
            7 => (4, Self::closed_queue_charges_no_policy),
            other => panic!("unknown decision {other}"),
        };
        let (same, otherwise) = rows.split_at(same);
        self.all(same, &format!("decision {decision}"));
        check(self, otherwise);
    }

    /// Decision 5: Go delivers equal deadlines in the order of its heap.
    fn ties_come_in_the_order_they_were_added(&mut self, go: &[Step<'_>]) {
        let here: Vec<Value> = go.iter().map(|_| self.get()).collect();
        let mut there: Vec<Value> = go.iter().map(|step| step.0[1].clone()).collect();
        assert_ne!(here, there);
        there.sort_by_key(Value::as_u64);
        assert_eq!(here, there);
    }

    /// Decision 6: Go is drained once no key is being processed.
    fn drain_waits_for_ready_keys(&mut self, go: &[Step<'_>]) {
        let rows: Vec<&[Value]> = go.iter().map(|step| step.0).collect();
        assert_eq!(
            json!(rows),
            json!([["drain", false, 1], ["done", 0, 1], ["drained", true, 1]])
        );
        let mut drain = pin!(self.queue.drain());
        let mut context = Context::from_waker(Waker::noop());
        let mut drained = || drain.as_mut().poll(&mut context).is_ready();
        assert!(!drained());
        self.held.remove(&0).unwrap().done();
        assert!(!drained(), "key 1 is still ready");
        self.queue.try_get().unwrap().done();
        assert!(drained());
    }

    /// Decision 7: Go counts the failure of a key that it then drops.
    fn closed_queue_charges_no_policy(&mut self, go: &[Step<'_>]) {
        assert_eq!(json!(go[0].0), json!(["requeues", 0, 2, 0]));
        assert_eq!(self.queue.num_requeues(&0), 1);
    }
}
