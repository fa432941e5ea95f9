//! x/time/rate.

use std::time::Instant;

use requeue::rate::{Limit, Limiter, Reservation, ReserveError};
use requeue::testing::FakeClock;
use serde_json::{Value, json};

use super::{Step, float, histories, steps};

/// How often Go's answer differs, by decision 14.
#[derive(Debug, Default)]
struct Differences {
    /// An endless wait is an error here. Go grants it, and the tokens are gone.
    never: usize,
    /// A reservation of an infinite limit took no token, and gives none back here. In Go it
    /// does, once the limit is finite.
    minted: usize,
}

#[test]
fn answers_and_tokens_equal_those_of_go() {
    let (mut calls, mut differences) = (0, Differences::default());
    for (number, history) in histories("rate.jsonl").iter().enumerate() {
        let mut replay = Replay::new(history);
        for step in steps(history) {
            replay.call(&step, &format!("limiter {number}, {:?}", step.0));
            calls += 1;
            differences.never += usize::from(step.is_never());
            differences.minted += usize::from(step.is_minted());
        }
    }
    assert!(calls >= 20_000, "{calls} calls");
    assert!(differences.never > 0 && differences.minted > 0, "{differences:?}");
}

struct Replay {
    start: Instant,
    limiter: Limiter,
    open: Vec<Reservation>,
}

impl Replay {
    fn new(history: &Value) -> Self {
        let burst = u32::try_from(history["burst"].as_u64().unwrap()).unwrap();
        let limiter = Limiter::new(limit(&history["limit"]), burst);
        Self { start: FakeClock::new().now(), limiter, open: Vec::new() }
    }

    fn call(&mut self, step: &Step<'_>, row: &str) {
        let t = self.start + step.nanos(1);
        let before = self.limiter.tokens_at(t);
        match step.call() {
            "allow" => {
                let allowed = self.limiter.allow_at(t, step.int(2));
                assert_eq!(json!(allowed), step.0[3], "{row}");
            }
            "reserve" if step.is_never() => {
                let asked = step.int(2);
                let refused = self.limiter.reserve_at(t, asked).unwrap_err();
                assert_eq!(refused, ReserveError::Never { asked }, "{row}");
            }
            "reserve" => self.reserve(t, step, row),
            "cancel" => self.open.remove(step.int(2)).cancel_at(t),
            "set_limit" => self.limiter.set_limit_at(t, limit(&step.0[2])),
            "set_burst" => self.limiter.set_burst_at(t, step.int(2)),
            "tokens" => {}
            call => panic!("no such call: {call}"),
        }
        let tokens = self.limiter.tokens_at(t);
        let differs = step.is_never() || step.is_minted();
        let go = if differs { before } else { float(step.0.last().unwrap()) };
        assert_eq!(tokens.to_bits(), go.to_bits(), "{tokens} and {go}, {row}");
    }

    fn reserve(&mut self, t: Instant, step: &Step<'_>, row: &str) {
        let reserved = self.limiter.reserve_at(t, step.int(2));
        let wait = reserved.as_ref().ok().map(|granted| granted.delay_from(t));
        let go = step.0[3].as_u64().map(std::time::Duration::from_nanos);
        assert_eq!(wait, go, "{row}");
        self.open.extend(reserved);
    }
}

impl Step<'_> {
    fn is_never(&self) -> bool {
        self.call() == "reserve" && self.0[3] == json!("never")
    }

    fn is_minted(&self) -> bool {
        self.call() == "cancel" && self.0[3] == json!(true)
    }
}

/// Go's infinite limit is the greatest float.
pub(super) fn limit(bits: &Value) -> Limit {
    match float(bits) {
        f64::MAX => Limit::INF,
        events => Limit::per_second(events),
    }
}
