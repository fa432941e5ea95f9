//! A queue in memory.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use requeue::metrics::Prometheus;
use requeue::order::{Fair, Priority};
use requeue::rate::{Limit, Limiter};
use requeue::retry::{Bucket, Exponential, RetryPolicy};
use requeue::{AddOptions, Added, Counts, Finish, Lease, Queue};

use crate::flags::JitterForm;
use crate::input::Key;
use crate::plan::{Order, Policy};
use crate::values::Rate;

/// A queue in memory, with back-pressure.
#[derive(Debug)]
pub(crate) struct MemoryQueue {
    queue: Queue<Key>,
    debounce: Option<Duration>,
    max_queued: Option<usize>,
    waiting: Mutex<()>,
    taken: Condvar,
}

impl MemoryQueue {
    pub(crate) fn new(
        policy: &Policy,
        max_queued: Option<usize>,
        metrics: Option<Prometheus>,
    ) -> Self {
        Self {
            queue: build(policy, metrics),
            debounce: policy.debounce,
            max_queued,
            waiting: Mutex::new(()),
            taken: Condvar::new(),
        }
    }

    /// Waits for a key. Returns `None` if the queue is closed.
    pub(crate) fn get(&self) -> Option<Lease<Key>> {
        let lease = self.queue.get_blocking();
        self.wake_reader();
        lease
    }

    /// Finishes a lease and waits for the next key.
    pub(crate) fn next(&self, lease: Lease<Key>, finish: Finish) -> Option<Lease<Key>> {
        let next = lease.next_blocking_with(finish);
        self.wake_reader();
        next
    }

    /// Adds a key, or postpones it if keys are debounced. Returns `None` if the queue is
    /// closed.
    pub(crate) fn add(&self, key: &[u8], priority: Option<i32>) -> Option<Added> {
        match (self.debounce, priority) {
            (Some(delay), _) => {
                let known = self.queue.contains(key);
                let added = self.queue.postpone(key.to_vec(), delay).ok()?;
                Some(if known { Added::Duplicate } else { added })
            }
            (None, Some(priority)) => {
                let options = AddOptions::new().priority(priority);
                self.queue.add_with(key.to_vec(), options).ok()
            }
            (None, None) => self.queue.add_ref(key).ok(),
        }
    }

    /// Waits until fewer than `max_queued` keys are queued, or the queue is closed.
    pub(crate) fn wait_for_room(&self) {
        let Some(max) = self.max_queued else { return };
        let full = |(): &mut ()| {
            let counts = self.queue.counts();
            counts.ready + counts.delayed >= max && !self.queue.is_closed()
        };
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.taken.wait_while(waiting, full));
    }

    fn wake_reader(&self) {
        if self.max_queued.is_some() {
            // Without this lock, the reader could miss the wake-up between finding the queue
            // full and going to sleep.
            drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.taken.notify_all();
        }
    }

    /// Closes the queue. Returns the keys that were not delivered.
    pub(crate) fn close(&self) -> Vec<Key> {
        let keys = self.queue.close_now();
        self.wake_reader();
        keys
    }

    pub(crate) fn wait_idle(&self) {
        self.queue.wait_idle_blocking();
    }

    pub(crate) fn counts(&self) -> Counts {
        self.queue.counts()
    }
}

fn build(policy: &Policy, metrics: Option<Prometheus>) -> Queue<Key> {
    // With `absorb_delays`, a key that arrives while it waits for a retry runs once, now.
    let mut builder =
        Queue::builder().name("run").absorb_delays(true).retry(retry_policy(policy));
    builder = match &policy.order {
        Order::Fifo => builder,
        Order::Priority => builder.order(Priority::new()),
        Order::Fair(grouping) => {
            let grouping = grouping.clone();
            builder.order(Fair::by(move |key: &Key| grouping.of(key).to_vec()))
        }
    };
    match metrics {
        Some(metrics) => builder.metrics(metrics).build(),
        None => builder.build(),
    }
}

fn retry_policy(policy: &Policy) -> Box<dyn RetryPolicy<Key>> {
    let backoff = Exponential::new(policy.backoff.base, policy.backoff.max);
    let backoff: Box<dyn RetryPolicy<Key>> = match policy.jitter {
        JitterForm::None => Box::new(backoff),
        JitterForm::Full => Box::new(backoff.full_jitter()),
        JitterForm::Equal => Box::new(backoff.equal_jitter()),
    };
    match policy.retry_rate {
        Rate::Unlimited => backoff,
        Rate::PerSecond(rate) => {
            let limiter = Limiter::new(Limit::per_second(rate), policy.retry_burst.get());
            Box::new(backoff.and(Bucket::new(limiter)))
        }
    }
}
