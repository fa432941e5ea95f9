//! Reads a log to find the keys that are already finished.
//!
//! A key is finished if its last run succeeded and the key was not added again after that run
//! started. Unreadable lines are skipped: a crash may have cut one off.
//!
//! The log is read as a stream. Memory depends on the number of finished keys, 32 bytes for
//! each, and not on the length of the log or of the keys.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, BufRead, Read};

use serde_json::Value;

use crate::hex::unhex;

/// Maximum length of a line, in bytes. A longer one was not written by `--log`.
const MAX_LINE: u64 = 4 * 1024 * 1024;

/// The state that an earlier run left behind.
#[derive(Debug, Default)]
pub(crate) struct Resumed {
    /// Keys that are running or finished. All others have to run.
    keys: HashMap<u128, KeyState>,
    /// Keys that were started and did not end.
    running: HashMap<u128, Vec<u8>>,
    hashers: [RandomState; 2],
}

/// The state of a key while the log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyState {
    /// It has to run.
    Due,
    /// It is running with this pid.
    Running(i32),
    /// It is running with this pid and has to run once more.
    RunningDirty(i32),
    Finished,
}

impl Resumed {
    /// Reads a log.
    pub(crate) fn read(mut log: impl BufRead) -> io::Result<Self> {
        let mut resumed = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = log.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
            if length == 0 {
                return Ok(resumed);
            }
            if let Ok(line) = serde_json::from_slice::<Value>(&line) {
                resumed.apply(&line);
            }
        }
    }

    /// Among a billion keys, another key is mistaken for a known one with a probability of
    /// 3e-30: the hash has 128 bits.
    fn hash(&self, key: &[u8]) -> u128 {
        let [high, low] =
            [0, 1].map(|at: usize| u128::from(self.hashers[at].hash_one(key)));
        high << 64 | low
    }

    fn apply(&mut self, line: &Value) {
        let (Some(event), Some(key)) = (line["event"].as_str(), key(line)) else {
            return;
        };
        let hash = self.hash(&key);
        let before = self.keys.get(&hash).copied().unwrap_or(KeyState::Due);
        let after = next(before, event, line);
        match after {
            KeyState::Due => drop(self.keys.remove(&hash)),
            KeyState::Running(_) | KeyState::RunningDirty(_) | KeyState::Finished => {
                self.keys.insert(hash, after);
            }
        }
        match after {
            KeyState::Running(_) | KeyState::RunningDirty(_) => {
                self.running.insert(hash, key);
            }
            KeyState::Due | KeyState::Finished => drop(self.running.remove(&hash)),
        }
    }

    pub(crate) fn is_finished(&self, key: &[u8]) -> bool {
        self.keys.get(&self.hash(key)) == Some(&KeyState::Finished)
    }

    /// Returns the keys whose commands may still be running, with their pids.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&[u8], i32)> {
        self.running.iter().filter_map(|(hash, key)| match self.keys.get(hash)? {
            KeyState::Running(pid) | KeyState::RunningDirty(pid) => {
                Some((&key[..], *pid))
            }
            KeyState::Due | KeyState::Finished => None,
        })
    }
}

fn next(before: KeyState, event: &str, line: &Value) -> KeyState {
    let pid =
        || line["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
    match (event, before) {
        ("started", _) => KeyState::Running(pid()),
        ("added" | "merged", KeyState::Running(pid) | KeyState::RunningDirty(pid)) => {
            KeyState::RunningDirty(pid)
        }
        ("finished", KeyState::Running(_)) if line["code"] == 0 => KeyState::Finished,
        ("added" | "merged" | "finished" | "retried" | "gave_up", _) => KeyState::Due,
        (_, before) => before,
    }
}

fn key(line: &Value) -> Option<Vec<u8>> {
    match line["key_hex"].as_str() {
        Some(hex) => unhex(hex),
        None => line["key"].as_str().map(|key| key.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Resumed {
        Resumed::read(lines.join("\n").as_bytes()).unwrap()
    }

    #[test]
    fn key_is_finished_if_its_last_run_succeeded() {
        let resumed = log(&[
            r#"{"event":"added","key":"good"}"#,
            r#"{"event":"started","key":"good","pid":7}"#,
            r#"{"event":"finished","key":"good","code":0}"#,
            r#"{"event":"started","key":"bad","pid":8}"#,
            r#"{"event":"finished","key":"bad","code":1}"#,
        ]);
        assert!(resumed.is_finished(b"good") && !resumed.is_finished(b"bad"));
        assert_eq!(resumed.running().count(), 0);
    }

    #[test]
    fn key_added_while_running_is_not_finished() {
        let resumed = log(&[
            r#"{"event":"started","key":"k","pid":7}"#,
            r#"{"event":"added","key":"k","processing":true}"#,
            r#"{"event":"finished","key":"k","code":0}"#,
        ]);
        assert!(!resumed.is_finished(b"k"));
    }

    #[test]
    fn key_added_after_its_run_is_not_finished() {
        let resumed = log(&[
            r#"{"event":"started","key":"k","pid":7}"#,
            r#"{"event":"finished","key":"k","code":0}"#,
            r#"{"event":"added","key":"k"}"#,
        ]);
        assert!(!resumed.is_finished(b"k"));
    }

    #[test]
    fn truncated_line_is_skipped() {
        let resumed = log(&[
            r#"{"event":"started","key":"k","pid":7}"#,
            r#"{"event":"finished","key":"k","co"#,
            r#"{"event":"started","key_hex":"ff00","key":"?","pid":9}"#,
            r#"{"event":"finished","key_hex":"ff00","key":"?","code":0}"#,
        ]);
        assert!(resumed.is_finished(b"\xff\0"));
        assert_eq!(resumed.running().collect::<Vec<_>>(), [(&b"k"[..], 7)]);
    }
}
