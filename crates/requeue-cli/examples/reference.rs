//! A minimal parallel launcher to compare the command with: a list of keys, and N threads
//! that run one process at a time. No queue, no output, no retries.
//!
//! `reference WORKERS PROGRAM < keys`

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let workers = arguments.next().and_then(|number| number.parse().ok());
    let (Some(workers), Some(program)) = (workers, arguments.next()) else {
        return ExitCode::from(2);
    };
    let mut text = String::new();
    if std::io::stdin().read_to_string(&mut text).is_err() {
        return ExitCode::from(2);
    }
    let keys: Vec<_> = text.lines().collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            let status = Command::new(&program).arg(key).stdin(Stdio::null()).status();
            if !status.is_ok_and(|status| status.success()) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..workers).for_each(|_: usize| drop(scope.spawn(work))));
    ExitCode::from(u8::from(failed.into_inner() > 0))
}
