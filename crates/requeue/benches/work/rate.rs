//! Calls of limiters, pacers and retry policies that do not wait.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use requeue::rate::{Keyed, Limit, Limiter, Pacer};
use requeue::retry::{Exponential, RetryPolicy};

use super::{COUNT, Run, keys};

/// Never empty and never full.
fn generous() -> Limiter {
    Limiter::new(Limit::per_second(1e6), 2_000_000_000)
}

fn repeat(mut call: impl FnMut() + 'static) -> Run {
    Box::new(move || (0..COUNT).for_each(|_| call()))
}

pub(super) fn allow() -> Run {
    let limiter = generous();
    repeat(move || assert!(limiter.allow()))
}

pub(super) fn denied() -> Run {
    let limiter = Limiter::new(Limit::every(Duration::from_secs(3600)), 1).with_tokens(0);
    repeat(move || assert!(!limiter.allow()))
}

pub(super) fn reserve() -> Run {
    let limiter = generous();
    repeat(move || assert!(black_box(limiter.reserve()).is_ok()))
}

pub(super) fn wait() -> Run {
    let limiter = generous();
    repeat(move || {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(limiter.wait()).poll(&mut cx).is_ready());
    })
}

pub(super) fn wait_blocking() -> Run {
    let limiter = generous();
    repeat(move || assert!(limiter.wait_blocking().is_ok()))
}

pub(super) fn take() -> Run {
    let pacer = Pacer::new(1_000_000_000);
    repeat(move || {
        black_box(pacer.take_blocking());
    })
}

pub(super) fn keyed_known() -> Run {
    let keyed = Keyed::new(Limit::per_second(1e6), 2_000_000_000);
    Box::new(move || keys().for_each(|key| assert!(keyed.allow(&key))))
}

pub(super) fn keyed_new() -> Run {
    Box::new(|| {
        let keyed = Keyed::new(Limit::per_second(1.0), 1);
        keys().for_each(|key| assert!(keyed.allow(&key)));
    })
}

pub(super) fn when_first() -> Run {
    let policy = Exponential::default();
    Box::new(move || {
        for key in keys() {
            black_box(policy.when(&key));
            policy.forget(&key);
        }
    })
}

pub(super) fn when_repeated() -> Run {
    let policy = Exponential::default();
    Box::new(move || {
        for key in keys() {
            black_box(policy.when(&key));
        }
    })
}
