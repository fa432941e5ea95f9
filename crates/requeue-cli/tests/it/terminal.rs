//! The display on a terminal, created by `script`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::{Dir, with_timeout};

/// Runs `requeue run` on a terminal with typed input. Returns everything it shows.
fn on_terminal(dir: &Dir, flags: &str, typed: &str) -> String {
    let line = format!("{} run {flags}", env!("CARGO_BIN_EXE_requeue"));
    let mut script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(dir.path("."))
        .env("TERM", "xterm")
        .env_remove("CI")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = script.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    let shown = with_timeout("waiting for requeue", move || script.wait_with_output());
    drop(keyboard);
    String::from_utf8(shown.unwrap().stdout).unwrap()
}

/// A run of one second, during which the status is drawn several times.
const A_WHILE: &str = "--timeout 1s --max-retries 0 -- cat go";

#[test]
fn status_is_drawn_and_removed() {
    let dir = Dir::new();
    dir.fifo("go");
    let shown = on_terminal(&dir, &format!("{A_WHILE} ::: k"), "");
    assert!(shown.contains("0/1 0 % · 0 retrying · 0 failed"), "{shown:?}");
    let after = shown.rsplit("\x1b[J").next().unwrap();
    assert!(
        after.starts_with("requeue: 1 key: 0 ok, 1 failed; 1 run, 0 retries; "),
        "{shown:?}"
    );
}

/// The status once overwrote the keys while they were typed.
#[test]
fn status_is_not_drawn_while_keys_are_typed() {
    let dir = Dir::new();
    dir.fifo("go");
    let shown = on_terminal(&dir, A_WHILE, "k\n\x04");
    assert!(shown.contains("requeue: 1 key: 0 ok, 1 failed; "), "{shown:?}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
}
