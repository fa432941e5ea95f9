//! Requests as arguments of scripts.

use std::num::NonZeroU32;

use requeue::Finish;
use requeue_store::{Add, Backoff, FinishRequest, Token, When, micros_of};

/// Encodes a token as records contain it: 16 digits.
pub(crate) fn token(token: Token) -> String {
    format!("{:016}", token.0)
}

/// Encodes the number of deliveries after which a key is dead. Without a limit it is more
/// than can happen.
pub(crate) fn max_deliveries(max: Option<NonZeroU32>) -> u64 {
    max.map_or(1 << 53, |max| u64::from(max.get()))
}

/// Encodes the plan of an add, see `add.lua`.
pub(crate) fn plan(add: &Add, partitions: usize) -> String {
    let (kind, details) = match &add.when {
        When::After(delay) if !delay.is_zero() => ('A', micros_of(*delay).to_string()),
        When::RateLimited(backoff) => ('L', policy(backoff, partitions)),
        When::Now | When::After(_) | _ => ('N', String::new()),
    };
    format!("{:+04}{kind}{}:{details}", add.priority, micros_of(add.revive_after))
}

/// Encodes how a lease ends, see `finish.lua`.
pub(crate) fn finish(request: &FinishRequest, partitions: usize) -> String {
    let FinishRequest { hold, finish, backoff, .. } = request;
    let error = request.error_text();
    let how = match finish {
        Finish::Succeed => "S".to_owned(),
        Finish::RequeueAfter(delay) => format!("A{}", micros_of(*delay)),
        Finish::Retry => format!("T{}:{error}", policy(backoff, partitions)),
        Finish::RetryAfter(delay) => format!("F{}:{error}", micros_of(*delay)),
        Finish::GiveUp => format!("G{error}"),
        Finish::Release => "R".to_owned(),
        Finish::Done | _ => "D".to_owned(),
    };
    token(hold.token) + &how
}

/// Encodes a backoff, see `lib/backoff.lua`. Each partition gets its share of the rate.
fn policy(backoff: &Backoff, partitions: usize) -> String {
    let (base, longest) = (micros_of(backoff.base), micros_of(backoff.max));
    let partitions = u64::try_from(partitions).unwrap_or(u64::MAX);
    let (interval, burst) = backoff.rate.map_or((0, 0), |rate| {
        let interval = micros_of(rate.interval).max(1).saturating_mul(partitions);
        (interval.min(1 << 52), u64::from(rate.burst.get()).div_ceil(partitions))
    });
    format!("{base}:{longest}:{interval}:{burst}")
}
