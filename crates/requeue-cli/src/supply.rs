//! Where workers take keys from: a queue in memory, or one on a store.

use requeue::metrics::Prometheus;
use requeue::order::{Fair, Priority};
use requeue::rate::{Limit, Limiter};
use requeue::retry::{Bucket, Exponential, RetryPolicy};
use requeue::{Counts, Lease, Queue};
use requeue_store::Error;

use crate::flags::JitterForm;
use crate::input::Key;
use crate::plan::{Order, Policy};
use crate::shared::{SharedKeys, StoredKey};
use crate::values::Rate;

/// The queue of a run.
#[derive(Debug)]
pub(crate) enum Supply {
    Memory(Queue<Key>),
    Store(Box<SharedKeys>),
}

/// A key that a worker was handed.
#[derive(Debug)]
pub(crate) enum Held {
    Memory(Lease<Key>),
    Store(StoredKey),
}

impl Supply {
    /// A queue in memory.
    pub(crate) fn in_memory(policy: &Policy, metrics: Option<Prometheus>) -> Self {
        Self::Memory(queue(policy, metrics))
    }

    /// Waits for a key; `None` if nothing more is handed out.
    pub(crate) fn take(&self) -> Result<Option<Held>, Error> {
        match self {
            Self::Memory(queue) => Ok(queue.get_blocking().map(Held::Memory)),
            Self::Store(keys) => Ok(keys.take()?.map(Held::Store)),
        }
    }

    /// Hands out nothing more: the keys that are lost with this process.
    pub(crate) fn close(&self) -> Vec<Key> {
        match self {
            Self::Memory(queue) => queue.close_now(),
            Self::Store(keys) => {
                keys.close();
                Vec::new()
            }
        }
    }

    /// Waits until no key is left anywhere, or until it is closed.
    pub(crate) fn wait_idle(&self) -> Result<(), Error> {
        match self {
            Self::Memory(queue) => {
                queue.wait_idle_blocking();
                Ok(())
            }
            Self::Store(keys) => keys.wait_idle(),
        }
    }

    /// How many keys there are, as far as that can be told at once.
    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Memory(queue) => queue.counts(),
            Self::Store(keys) => keys.counts(),
        }
    }

    /// The queue on a store, if it is one.
    pub(crate) fn store(&self) -> Option<&SharedKeys> {
        match self {
            Self::Memory(_) => None,
            Self::Store(keys) => Some(keys),
        }
    }
}

/// The queue that a policy asks for.
fn queue(policy: &Policy, metrics: Option<Prometheus>) -> Queue<Key> {
    // A key that comes while it waits for its retry runs once, now: it is queued already.
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
