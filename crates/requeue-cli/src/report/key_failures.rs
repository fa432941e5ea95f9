//! Failed keys and their errors, in bounded memory.

use std::collections::VecDeque;

use super::text::{count, shown};
use crate::command::Exit;
use crate::key_set::KeySet;

/// How many of the first keys, and how many of the latest keys, keep their error.
const LISTED: usize = 10;

/// How many different keys are counted exactly. Their hashes take 19 MB.
const MAX_MEMBERS: usize = 1_000_000;

/// Why a key failed.
#[derive(Clone, Debug)]
pub(super) enum KeyFailure {
    /// Its last run here failed.
    LastRun { exit: Exit, runs: u32, last_line: String },
    /// It died in the store, for this reason, but not because of its last run here.
    Died(String),
}

/// A set of failed keys.
///
/// All are counted; the errors of the first and of the latest ones are kept. Up to
/// [`MAX_MEMBERS`] different keys, the count is exact. Above that, each further failure counts
/// as another key.
#[derive(Debug, Default)]
pub(super) struct KeyFailures {
    members: KeySet,
    uncounted: u64,
    first: Vec<(Vec<u8>, KeyFailure)>,
    latest: VecDeque<(Vec<u8>, KeyFailure)>,
}

impl KeyFailures {
    pub(super) fn len(&self) -> u64 {
        self.members.len() as u64 + self.uncounted
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.members.contains(key)
    }

    /// Adds a key, or replaces its error.
    pub(super) fn insert(&mut self, key: &[u8], failure: KeyFailure) {
        let mut listed = self.first.iter_mut().chain(&mut self.latest);
        if let Some((_, known)) = listed.find(|(known, _)| known == key) {
            *known = failure;
            return;
        }
        if self.members.len() < MAX_MEMBERS {
            self.members.insert(key);
        } else if !self.members.contains(key) {
            self.uncounted += 1;
        }
        if self.latest.is_empty() && self.first.len() < LISTED {
            self.first.push((key.to_vec(), failure));
            return;
        }
        if self.latest.len() == LISTED {
            self.latest.pop_front();
        }
        self.latest.push_back((key.to_vec(), failure));
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.members.remove(key) {
            self.first.retain(|(known, _)| known != key);
            self.latest.retain(|(known, _)| known != key);
        }
    }

    /// Lists the keys with their errors, and counts those that are left out. `word` says what
    /// happened to them.
    pub(super) fn list(&self, word: &str) -> Vec<String> {
        let line = |(key, failure): &(Vec<u8>, KeyFailure)| {
            format!("{word}: {}: {}", shown(key), failure.text())
        };
        let mut lines: Vec<_> = self.first.iter().map(line).collect();
        let hidden =
            self.len().saturating_sub((self.first.len() + self.latest.len()) as u64);
        if hidden > 0 {
            let keys = if hidden == 1 { "key" } else { "keys" };
            lines.push(format!("and {hidden} more {keys} {word}"));
        }
        lines.extend(self.latest.iter().map(line));
        lines
    }
}

impl KeyFailure {
    fn text(&self) -> String {
        match self {
            Self::Died(reason) => shown(reason.as_bytes()),
            Self::LastRun { exit, runs, last_line } => {
                let runs = count(u64::from(*runs), "run", "runs");
                with_last_line(format!("{} after {runs}", exit_text(*exit)), last_line)
            }
        }
    }
}

/// Formats a failed run: its exit and the last line of its standard error.
pub(crate) fn error_text(exit: Exit, last_line: &str) -> String {
    with_last_line(exit_text(exit), last_line)
}

fn with_last_line(text: String, last_line: &str) -> String {
    if last_line.is_empty() { text } else { format!("{text}: {last_line}") }
}

fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::TimedOut => "timed out".to_owned(),
        Exit::NotStarted | Exit::InvalidKey => "could not start".to_owned(),
        Exit::Status(_) => match exit.signal() {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("exit code {}", exit.code()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(why: &str) -> KeyFailure {
        KeyFailure::Died(why.to_owned())
    }

    fn key(number: u32) -> Vec<u8> {
        format!("k{number}").into_bytes()
    }

    /// A worker that ran for months once kept the error of every key that ever failed.
    #[test]
    fn errors_of_the_first_and_latest_keys_are_kept() {
        let mut failures = KeyFailures::default();
        (0..1000).for_each(|number| failures.insert(&key(number), died("no")));
        (0..1000).for_each(|number| failures.insert(&key(number), died("no")));
        assert_eq!(failures.len(), 1000);
        assert_eq!(failures.first.len() + failures.latest.len(), 2 * LISTED);
        let list = failures.list("failed");
        assert_eq!(list[0], "failed: k0: no");
        assert_eq!(list[LISTED], "and 980 more keys failed");
        assert_eq!(list[2 * LISTED], "failed: k999: no");
    }

    #[test]
    fn key_that_succeeds_is_removed() {
        let mut failures = KeyFailures::default();
        failures.insert(b"a", died("no"));
        failures.insert(b"a", died("still no"));
        failures.insert(b"b", died("never"));
        assert_eq!(failures.list("failed"), ["failed: a: still no", "failed: b: never"]);
        failures.remove(b"a");
        failures.remove(b"a");
        assert_eq!((failures.len(), failures.contains(b"b")), (1, true));
    }
}
