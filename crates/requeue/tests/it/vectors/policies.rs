//! client-go's item rate limiters.

use std::time::Duration;

use requeue::rate::Limiter;
use requeue::retry::{
    Bucket, Exponential, FastSlow, RetryPolicy, controller_default, item_default,
};
use requeue::testing::FakeClock;
use serde_json::Value;

use super::rate::limit;
use super::{Step, histories, steps};

/// How often Go's delay overflows and is negative, which never happens here: decision 10.
const OVERFLOWS: usize = 10;

#[test]
fn delays_equal_those_of_go() {
    let mut overflows = 0;
    for (number, history) in histories("policies.jsonl").iter().enumerate() {
        let clock = FakeClock::new();
        let policy = policy(&history["policy"], &clock);
        for step in steps(history) {
            let row = format!("policy {number}, {:?}", step.0);
            if step.call() == "when" && step.int::<i64>(2) < 0 {
                never_negative(&policy, &history["policy"], &row);
                overflows += 1;
            } else {
                call(&policy, &clock, &step, &row);
            }
        }
    }
    assert_eq!(overflows, OVERFLOWS);
}

fn call(policy: &AnyPolicy, clock: &FakeClock, step: &Step<'_>, row: &str) {
    match step.call() {
        "when" => assert_eq!(policy.when(&step.int(1)), step.nanos(2), "{row}"),
        "forget" => policy.forget(&step.int(1)),
        "requeues" => {
            let requeues = policy.num_requeues(&step.int(1));
            assert_eq!(requeues, step.int::<u32>(2), "{row}");
        }
        "advance" => clock.advance(step.nanos(1)),
        call => panic!("no such call: {call}"),
    }
}

/// Decision 10: a delay that overflows in Go is the maximum here, or zero for a base of zero.
fn never_negative(policy: &AnyPolicy, made: &Value, row: &str) {
    let longest =
        if made.get("base").is_some() { nanos(made, "max") } else { Duration::ZERO };
    assert_eq!(policy.when(&0), longest, "{row}");
}

pub(super) type AnyPolicy = Box<dyn RetryPolicy<u32>>;

/// Returns the policy of a history.
pub(super) fn policy(made: &Value, clock: &FakeClock) -> AnyPolicy {
    let part = |at: usize| policy(&made["of"][at], clock);
    match made["kind"].as_str().unwrap() {
        "exponential" => {
            Box::new(Exponential::new(nanos(made, "base"), nanos(made, "max")))
        }
        "fast_slow" => {
            let fast = int(made, "max_fast");
            Box::new(FastSlow::new(nanos(made, "fast"), nanos(made, "slow"), fast))
        }
        "bucket" => {
            let limit = limit(&made["limit"]);
            let limiter = Limiter::with_clock(limit, int(made, "burst"), clock.clone());
            Box::new(Bucket::new(limiter))
        }
        "max_of" => Box::new(part(0).and(part(1))),
        "max_wait" => Box::new(part(0).at_most(nanos(made, "max"))),
        "item_default" => Box::new(item_default()),
        "controller_default" => Box::new(controller_default()),
        kind => panic!("no such policy: {kind}"),
    }
}

fn nanos(made: &Value, field: &str) -> Duration {
    Duration::from_nanos(made.get(field).map_or(0, |value| value.as_u64().unwrap()))
}

fn int(made: &Value, field: &str) -> u32 {
    let number = made.get(field).map_or(0, |value| value.as_u64().unwrap());
    u32::try_from(number).unwrap()
}
