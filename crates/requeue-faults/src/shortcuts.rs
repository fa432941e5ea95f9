//! How often the short scripts of Redis for a single key were used, seen in what passes
//! between the clients and the server.
//!
//! A script is called by its hash. One for leases may find that it will not do, so there it
//! is the answer that is looked for, which is like no other: a token of 16 digits, and at
//! once the key.

use std::sync::atomic::{AtomicUsize, Ordering};

use redis::Script;

const ADD_ONE: &str = include_str!("../../requeue-redis/scripts/add_one.lua");
const FINISH_ONE: &str = include_str!("../../requeue-redis/scripts/finish_one.lua");

/// The digits of a token.
const DIGITS: usize = 16;

/// How often each was used. What falls between two pieces is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortcuts {
    pub(crate) adds: usize,
    pub(crate) leases: usize,
    pub(crate) ends: usize,
}

impl std::iter::Sum for Shortcuts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, next| Self {
            adds: sum.adds + next.adds,
            leases: sum.leases + next.leases,
            ends: sum.ends + next.ends,
        })
    }
}

/// Who counts them.
#[derive(Debug)]
pub(crate) struct Counter {
    add: String,
    finish: String,
    adds: AtomicUsize,
    leases: AtomicUsize,
    ends: AtomicUsize,
}

impl Counter {
    pub(crate) fn new() -> Self {
        let hash = |code| Script::new(code).get_hash().to_owned();
        Self {
            add: hash(ADD_ONE),
            finish: hash(FINISH_ONE),
            adds: AtomicUsize::new(0),
            leases: AtomicUsize::new(0),
            ends: AtomicUsize::new(0),
        }
    }

    /// Looks at what is on its way to the server.
    pub(crate) fn read_request(&self, piece: &[u8]) {
        self.adds.fetch_add(count(piece, self.add.as_bytes()), Ordering::Relaxed);
        self.ends.fetch_add(count(piece, self.finish.as_bytes()), Ordering::Relaxed);
    }

    /// Looks at what is on its way back.
    pub(crate) fn read_answer(&self, piece: &[u8]) {
        self.leases.fetch_add(count_grants(piece), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Shortcuts {
        Shortcuts {
            adds: self.adds.load(Ordering::Relaxed),
            leases: self.leases.load(Ordering::Relaxed),
            ends: self.ends.load(Ordering::Relaxed),
        }
    }
}

fn count(piece: &[u8], words: &[u8]) -> usize {
    piece.windows(words.len()).filter(|window| *window == words).count()
}

fn count_grants(piece: &[u8]) -> usize {
    let is_grant = |window: &[u8]| {
        window[DIGITS] == b'k' && window[..DIGITS].iter().all(u8::is_ascii_digit)
    };
    piece.windows(DIGITS + 1).filter(|window| is_grant(window)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_known_by_its_hash_and_a_lease_by_its_answer() {
        let counter = Counter::new();
        let add = Script::new(ADD_ONE);
        let call = format!("*4\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n", add.get_hash());
        counter.read_request(call.repeat(2).as_bytes());
        counter.read_answer(b"$18\r\n1700000000000000k7\r\n");
        counter.read_answer(b"*5\r\n:0\r\n:0\r\n:1700000000000000\r\n:0\r\n$2\r\nk7\r\n");
        assert_eq!(counter.read(), Shortcuts { adds: 2, leases: 1, ends: 0 });
    }
}
