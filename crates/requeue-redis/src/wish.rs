//! Requests as scripts read them.

use std::num::NonZeroU32;

use requeue::Finish;
use requeue_store::{Add, Backoff, FinishRequest, Token, When, micros_of};

/// A token as states hold it.
pub(crate) fn token(token: Token) -> String {
    format!("{:016}", token.0)
}

/// How many grants without an end make a key dead: more than there can be, if none do.
pub(crate) fn most(max_deliveries: Option<NonZeroU32>) -> u64 {
    max_deliveries.map_or(1 << 53, |max| u64::from(max.get()))
}

/// See `add_later.lua`.
pub(crate) fn when(add: &Add, partitions: usize) -> String {
    let priority = match add.priority {
        0 => String::new(),
        priority => format!("@{priority:+04}"),
    };
    match &add.when {
        When::After(delay) => format!("{priority}A{}", micros_of(*delay)),
        When::RateLimited(backoff) => {
            format!("{priority}L{}", policy(backoff, partitions))
        }
        When::Now | _ => format!("{priority}N"),
    }
}

/// See `finish.lua`.
pub(crate) fn finish(request: &FinishRequest, partitions: usize) -> String {
    let FinishRequest { finish, backoff, .. } = request;
    let error = request.error_text();
    match finish {
        Finish::Succeed => "S".to_owned(),
        Finish::RequeueAfter(delay) => format!("A{}", micros_of(*delay)),
        Finish::Retry => format!("T{}:{error}", policy(backoff, partitions)),
        Finish::RetryAfter(delay) => format!("F{}:{error}", micros_of(*delay)),
        Finish::GiveUp => format!("B{error}"),
        Finish::Release => "R".to_owned(),
        Finish::Done | _ => "D".to_owned(),
    }
}

/// See `backoff.lua`. Each partition has its part of the rate.
fn policy(backoff: &Backoff, partitions: usize) -> String {
    let (base, longest) = (micros_of(backoff.base), micros_of(backoff.max));
    let partitions = u64::try_from(partitions).unwrap_or(u64::MAX);
    let (interval, burst) = backoff.rate.map_or((0, 0), |rate| {
        let interval = micros_of(rate.interval).max(1).saturating_mul(partitions);
        (interval.min(1 << 52), u64::from(rate.burst.get()).div_ceil(partitions))
    });
    format!("{base}:{longest}:{interval}:{burst}")
}
