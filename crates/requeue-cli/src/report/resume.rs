//! Reading a log back: which keys need not run again.
//!
//! A key is finished if its last run succeeded and it did not come again after that run
//! began. Lines that cannot be read are left out: a crash may have cut one off.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::hex::unhex;

/// What an earlier run has left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resumed {
    finished: HashSet<Vec<u8>>,
    /// Keys that were started and not seen to end, with the number of the process.
    running: Vec<(Vec<u8>, i32)>,
}

impl Resumed {
    pub(crate) fn is_finished(&self, key: &[u8]) -> bool {
        self.finished.contains(key)
    }

    /// Keys whose process of then may still be there, with its number.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&[u8], i32)> {
        self.running.iter().map(|(key, pid)| (&key[..], *pid))
    }
}

/// Where a key stands while the log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has to run.
    Due,
    /// It runs, and has not come again.
    Running(i32),
    /// It runs, and has to run once more.
    RunningDue(i32),
    Finished,
}

pub(crate) fn resume(log: &[u8]) -> Resumed {
    let mut keys = HashMap::new();
    for line in log.split(|byte| *byte == b'\n') {
        if let Ok(line) = serde_json::from_slice::<Value>(line) {
            follow(&mut keys, &line);
        }
    }
    let mut resumed = Resumed::default();
    for (key, standing) in keys {
        match standing {
            Standing::Due => {}
            Standing::Finished => drop(resumed.finished.insert(key)),
            Standing::Running(pid) | Standing::RunningDue(pid) => {
                resumed.running.push((key, pid));
            }
        }
    }
    resumed
}

fn follow(keys: &mut HashMap<Vec<u8>, Standing>, line: &Value) {
    let (Some(event), Some(key)) = (line["event"].as_str(), key(line)) else { return };
    let before = keys.get(&key).copied().unwrap_or(Standing::Due);
    keys.insert(key, next(before, event, line));
}

fn next(before: Standing, event: &str, line: &Value) -> Standing {
    let pid =
        || line["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
    match (event, before) {
        ("started", _) => Standing::Running(pid()),
        ("added" | "merged", Standing::Running(pid) | Standing::RunningDue(pid)) => {
            Standing::RunningDue(pid)
        }
        ("finished", Standing::Running(_)) if line["code"] == 0 => Standing::Finished,
        ("added" | "merged" | "finished" | "retried" | "gave_up", _) => Standing::Due,
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
    fn a_key_is_finished_if_its_last_run_succeeded() {
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
    fn a_key_that_came_again_while_it_ran_is_not_finished() {
        let resumed = log(&[
            r#"{"event":"started","key":"k","pid":7}"#,
            r#"{"event":"added","key":"k","processing":true}"#,
            r#"{"event":"finished","key":"k","code":0}"#,
        ]);
        assert!(!resumed.is_finished(b"k"));
    }

    #[test]
    fn a_key_that_came_after_its_run_is_not_finished() {
        let resumed = log(&[
            r#"{"event":"started","key":"k","pid":7}"#,
            r#"{"event":"finished","key":"k","code":0}"#,
            r#"{"event":"added","key":"k"}"#,
        ]);
        assert!(!resumed.is_finished(b"k"));
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out() {
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
