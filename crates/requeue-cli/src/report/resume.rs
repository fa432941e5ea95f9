//! Reads a log to find the keys that are already finished.
//!
//! A key is finished if its last run succeeded and the key was not added again after that run
//! started. Unreadable lines are skipped: a crash may have cut one off.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::hex::unhex;

/// The state that an earlier run left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resumed {
    finished: HashSet<Vec<u8>>,
    /// Keys that were started and did not end, with the pids of their commands.
    running: Vec<(Vec<u8>, i32)>,
}

impl Resumed {
    pub(crate) fn is_finished(&self, key: &[u8]) -> bool {
        self.finished.contains(key)
    }

    /// Returns the keys whose commands may still be running, with their pids.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&[u8], i32)> {
        self.running.iter().map(|(key, pid)| (&key[..], *pid))
    }
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

pub(crate) fn resume(log: &[u8]) -> Resumed {
    let mut keys = HashMap::new();
    for line in log.split(|byte| *byte == b'\n') {
        if let Ok(line) = serde_json::from_slice::<Value>(line) {
            apply(&mut keys, &line);
        }
    }
    let mut resumed = Resumed::default();
    for (key, state) in keys {
        match state {
            KeyState::Due => {}
            KeyState::Finished => drop(resumed.finished.insert(key)),
            KeyState::Running(pid) | KeyState::RunningDirty(pid) => {
                resumed.running.push((key, pid));
            }
        }
    }
    resumed
}

fn apply(keys: &mut HashMap<Vec<u8>, KeyState>, line: &Value) {
    let (Some(event), Some(key)) = (line["event"].as_str(), key(line)) else { return };
    let before = keys.get(&key).copied().unwrap_or(KeyState::Due);
    keys.insert(key, next(before, event, line));
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
        resume(lines.join("\n").as_bytes())
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
