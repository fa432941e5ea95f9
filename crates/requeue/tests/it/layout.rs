//! Checks the imports of files: pure ones stay pure, and imports point one way.

use std::fs;
use std::path::{Path, PathBuf};

/// The code of a file without comments, up to its inline test module.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("the sources are beside the tests");
    let inline_tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..inline_tests].lines().map(str::trim);
    lines.filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The sources at `path` below `src`: a file, or all files of a folder but its tests.
fn sources(path: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path);
    if path.is_file() {
        return vec![path];
    }
    let files = fs::read_dir(&path).expect("a folder of sources");
    let files = files.map(|file| file.expect("a readable folder").path());
    let is_test = |file: &PathBuf| file.ends_with("tests.rs");
    files.filter(|file| file.is_file() && !is_test(file)).collect()
}

const PURE: [&str; 9] = [
    "queue/state.rs",
    "queue/state",
    "queue/table.rs",
    "queue/delay.rs",
    "queue/delay",
    "queue/order",
    "queue/line.rs",
    "queue/slots.rs",
    "rate/bucket.rs",
];

const IMPURE: [(&str, &str); 8] = [
    ("std::sync", "locks or shares"),
    ("crate::sync", "locks"),
    ("Mutex", "locks"),
    ("Instant", "depends on a clock: time is an argument"),
    ("crate::clock", "depends on a clock"),
    ("async ", "waits"),
    ("Waker", "wakes"),
    ("std::thread", "blocks or spawns"),
];

#[test]
fn pure_files_import_no_lock_clock_or_task() {
    for file in PURE.into_iter().flat_map(sources) {
        let code = code(&file);
        for (word, reason) in IMPURE {
            let file = file.display();
            assert!(
                !code.contains(word),
                "{file} must be pure, but {reason}: it contains `{word}`"
            );
        }
    }
}

#[test]
fn limiters_do_not_depend_on_the_queue() {
    for file in sources("rate") {
        let code = code(&file);
        for import in code.split("crate::").skip(1) {
            let allowed = ["clock", "contain", "key", "rate", "sync", "wake"];
            let allowed = allowed.iter().any(|name| import.starts_with(name));
            let name: String = import.chars().take_while(|c| *c != ';').collect();
            assert!(
                allowed,
                "{} imports crate::{name}: rate/ may use clock, contain, key, sync and wake \
                 only, so that it can become a separate crate",
                file.display()
            );
        }
    }
}

#[test]
fn imports_point_one_way() {
    let rules = [
        ("clock.rs", ["crate::queue", "crate::rate", "crate::retry"]),
        ("retry", ["crate::queue", "crate::metrics", "super::queue"]),
        ("queue/order", ["crate::queue::state", "super::super::", "crate::metrics"]),
        ("queue", ["crate::pool", "super::pool", "tokio"]),
        ("pool", ["crate::queue", "crate::clock", "crate::retry"]),
    ];
    for (path, forbidden) in rules {
        for file in sources(path) {
            let code = code(&file);
            for import in forbidden {
                let file = file.display();
                assert!(!code.contains(import), "{file} must not import {import}");
            }
        }
    }
}
