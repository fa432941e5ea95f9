//! Requests as scripts read them.

use std::num::NonZeroU32;

use requeue_store::{Add, Backoff, Ending, Token, When, micros_of};

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
pub(crate) fn ending(ending: &Ending, partitions: usize) -> String {
    match ending {
        Ending::Succeed => "S".to_owned(),
        Ending::Retry { backoff, error } => {
            format!("T{}:{}", policy(backoff, partitions), kept(error))
        }
        Ending::RetryAfter(delay) => format!("A{}", micros_of(*delay)),
        Ending::Bury { reason } => format!("B{}", kept(reason)),
        Ending::Release => "R".to_owned(),
        Ending::Done | _ => "D".to_owned(),
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

/// As much of a text for people as is kept.
fn kept(text: &str) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(Ending::MAX_TEXT)).rev().find(fits);
    &text[..end.unwrap_or(0)]
}
