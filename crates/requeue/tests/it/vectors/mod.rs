//! The recorded answers of the Go originals, replayed.
//!
//! `scripts/vectors` records them, and `peers/README.md` describes the rows. Our answers are
//! equal, tokens bit for bit, except for rows that a test names with the decision behind
//! them.

mod pacer;
mod policies;
mod priority;
mod queue;
mod rate;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// All histories of one file.
fn histories(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The decision by which the last rows of a history differ, if they do.
fn decision(history: &Value) -> Option<u64> {
    history.get("decision").map(|number| number.as_u64().unwrap())
}

/// One call and its answers.
struct Step<'a>(&'a [Value]);

fn steps(history: &Value) -> impl Iterator<Item = Step<'_>> {
    let steps = history["steps"].as_array().unwrap();
    steps.iter().map(|step| Step(step.as_array().unwrap()))
}

impl Step<'_> {
    fn call(&self) -> &str {
        self.0[0].as_str().unwrap()
    }

    fn nanos(&self, at: usize) -> Duration {
        Duration::from_nanos(self.0[at].as_u64().unwrap())
    }

    fn int<T: TryFrom<i64>>(&self, at: usize) -> T {
        let number = self.0[at].as_i64().unwrap();
        T::try_from(number).ok().expect("the number fits")
    }

    /// The last answer of a row of a queue: how many keys are ready.
    fn len(&self) -> usize {
        self.int(self.0.len() - 1)
    }
}

/// A float by its bits.
fn float(value: &Value) -> f64 {
    f64::from_bits(u64::from_str_radix(value.as_str().unwrap(), 16).unwrap())
}
