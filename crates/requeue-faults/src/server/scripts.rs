//! Counts how often clients use the single-key scripts of Redis, by watching the traffic.
//!
//! Clients call a script by its hash. The script for leases may find that it does not apply,
//! so leases are counted by the unique shape of its answer: a token of 16 digits directly
//! followed by the key.

use std::iter::Sum;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::Script;

const ADD_ONE: &str = include_str!("../../../requeue-redis/scripts/add_one.lua");
const FINISH_ONE: &str = include_str!("../../../requeue-redis/scripts/finish_one.lua");

/// The number of digits of a token.
const DIGITS: usize = 16;

/// How often each script was used. A call that is split over two reads is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptCounts {
    pub(crate) adds: usize,
    pub(crate) leases: usize,
    pub(crate) finishes: usize,
}

impl Sum for ScriptCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, next| Self {
            adds: sum.adds + next.adds,
            leases: sum.leases + next.leases,
            finishes: sum.finishes + next.finishes,
        })
    }
}

#[derive(Debug)]
pub(crate) struct ScriptCounter {
    add_hash: String,
    finish_hash: String,
    adds: AtomicUsize,
    leases: AtomicUsize,
    finishes: AtomicUsize,
}

impl ScriptCounter {
    pub(crate) fn new() -> Self {
        let hash = |code| Script::new(code).get_hash().to_owned();
        Self {
            add_hash: hash(ADD_ONE),
            finish_hash: hash(FINISH_ONE),
            adds: AtomicUsize::new(0),
            leases: AtomicUsize::new(0),
            finishes: AtomicUsize::new(0),
        }
    }

    /// Counts the scripts in data from a client.
    pub(crate) fn read_request(&self, data: &[u8]) {
        let (adds, finishes) = (self.add_hash.as_bytes(), self.finish_hash.as_bytes());
        self.adds.fetch_add(count(data, adds), Ordering::Relaxed);
        self.finishes.fetch_add(count(data, finishes), Ordering::Relaxed);
    }

    /// Counts the leases in data from the server.
    pub(crate) fn read_answer(&self, data: &[u8]) {
        self.leases.fetch_add(count_grants(data), Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> ScriptCounts {
        ScriptCounts {
            adds: self.adds.load(Ordering::Relaxed),
            leases: self.leases.load(Ordering::Relaxed),
            finishes: self.finishes.load(Ordering::Relaxed),
        }
    }
}

fn count(data: &[u8], pattern: &[u8]) -> usize {
    data.windows(pattern.len()).filter(|window| *window == pattern).count()
}

fn count_grants(data: &[u8]) -> usize {
    let is_grant = |window: &[u8]| {
        window[DIGITS] == b'k' && window[..DIGITS].iter().all(u8::is_ascii_digit)
    };
    data.windows(DIGITS + 1).filter(|window| is_grant(window)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_by_hash_and_leases_by_answer() {
        let counter = ScriptCounter::new();
        let add = Script::new(ADD_ONE);
        let call = format!("*4\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n", add.get_hash());
        counter.read_request(call.repeat(2).as_bytes());
        counter.read_answer(b"$18\r\n1700000000000000k7\r\n");
        counter.read_answer(b"*5\r\n:0\r\n:0\r\n:1700000000000000\r\n:0\r\n$2\r\nk7\r\n");
        let expected = ScriptCounts { adds: 2, leases: 1, finishes: 0 };
        assert_eq!(counter.counts(), expected);
    }
}
