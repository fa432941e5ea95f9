//! Signals, exit codes, broken pipes.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use crate::harness::{Dir, Live, ends, is_alive, numbers, patiently, signal};

/// Starts a run in which the key `slow` tells its process and waits to be let go.
fn start_slow(dir: &Dir, flags: &[&str], script: &str) -> (Live, String) {
    dir.pipes();
    let script = format!("if [ {{}} = slow ]; then {script}; fi; echo {{}}");
    let mut live = dir.run(["-j1"]).args(flags).args(["--shell", &script]).start();
    for key in ["slow", "b", "c"] {
        live.say(key);
    }
    let pid = dir.hear("pid").trim().to_owned();
    live.wait_for_status("ready 2  running 1/1");
    (live, pid)
}

/// Tells its process and waits.
const WAITS: &str = "echo $$ > pid; cat go >/dev/null";

#[test]
fn the_first_signal_finishes_what_runs() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let dir = Dir::new();
        let (mut live, _) = start_slow(&dir, &[], WAITS);
        live.signal(signal);
        live.err_line("finishing what runs (1)");
        dir.release("go");
        let ran = live.ended().expect(code);
        assert_eq!(ran.out, "slow\n", "what runs is finished, the rest is not started");
        assert!(ran.err.contains("2 keys left"), "{}", ran.err);
    }
}

#[test]
fn the_second_signal_ends_what_runs() {
    let dir = Dir::new();
    let (mut live, pid) = start_slow(&dir, &["--log", "log"], WAITS);
    live.signal("INT");
    live.err_line("finishing");
    live.signal("INT");
    let ran = live.ended().expect(130);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("3 keys left"), "{}", ran.err);
    ends(&pid);
    assert_eq!(dir.events("log", "drained")[0]["left"], 3);
}

#[test]
fn what_ignores_term_is_killed_by_the_third_signal() {
    let dir = Dir::new();
    let script =
        "trap 'echo heard > heard' TERM; echo $$ > pid; while :; do cat go; done";
    let (mut live, pid) = start_slow(&dir, &["--kill-after", "1h"], script);
    live.signal("TERM");
    live.err_line("finishing what runs (1); once more sends TERM to it");
    live.signal("TERM");
    live.err_line(
        "sent TERM to what runs (1); KILL follows in 1h00m, or at once if asked once more",
    );
    // Its cat is gone, and so it says that it heard the signal; it goes on.
    live.wait_for_status("running 1/1");
    live.signal("TERM");
    live.ended().expect(143);
    ends(&pid);
}

#[test]
fn what_ignores_term_is_killed_after_a_while() {
    let dir = Dir::new();
    let script = "trap '' TERM; echo $$ > pid; while :; do cat go; done";
    let (mut live, pid) = start_slow(&dir, &["--kill-after", "100ms"], script);
    live.signal("TERM");
    live.err_line("finishing");
    live.signal("TERM");
    live.ended().expect(143);
    ends(&pid);
}

#[test]
fn grandchildren_end_with_their_run() {
    let dir = Dir::new();
    // The grandchild ignores TERM, its parent does not.
    let script = "sh -c 'trap \"\" TERM; echo $$ > pid; while :; do cat go; done' & wait";
    let (mut live, pid) = start_slow(&dir, &[], script);
    live.signal("INT");
    live.err_line("finishing");
    live.signal("INT");
    live.ended().expect(130);
    ends(&pid);
}

#[test]
fn quit_kills_at_once() {
    let dir = Dir::new();
    let (live, pid) =
        start_slow(&dir, &[], "trap '' TERM; echo $$ > pid; while :; do cat go; done");
    live.signal("QUIT");
    live.ended().expect(131);
    ends(&pid);
}

#[test]
fn a_signal_with_nothing_left_to_do_is_no_failure() {
    let dir = Dir::new();
    dir.fifo("go");
    let mut live = dir.run(["--shell", "cat go > /dev/null; echo {}"]).start();
    live.say("k");
    live.end_input();
    live.wait_for_status("running 1/");
    live.signal("INT");
    live.err_line("finishing");
    dir.release("go");
    assert_eq!(live.ended().expect(0).out, "k\n");
}

#[test]
fn a_signal_while_nothing_runs_ends_at_once() {
    let dir = Dir::new();
    let mut live = dir.run(["--", "echo"]).start();
    live.say("k");
    assert_eq!(live.out_line(), "k");
    live.signal("TERM");
    // The input is still open: nobody knows what else would have come.
    assert_eq!(live.ended_with_open_input(), Some(143));
}

#[test]
fn a_key_that_waits_for_its_retry_is_left_by_a_signal() {
    let dir = Dir::new();
    let mut live = dir.run(["--backoff", "1h", "--", "false"]).start();
    live.say("k");
    live.end_input();
    live.wait_for_status("delayed 1 (next ");
    live.signal("INT");
    let ran = live.ended().expect(130);
    assert!(ran.err.contains("1 key left"), "{}", ran.err);
}

#[test]
fn a_command_that_is_not_there_is_told_once_and_not_retried() {
    let keys = numbers(1000);
    let ran =
        Dir::new().run(["no-such-command", "{}"]).stdin(keys.clone()).ran().expect(127);
    assert_eq!(ran.err, "requeue: command not found: no-such-command\n");
    let ran = Dir::new().run(["echo {}"]).stdin("a\n").ran().expect(127);
    let why = "command not found: echo a (--shell takes a command in one word)";
    assert!(ran.err.contains(why), "{}", ran.err);
    let ran = Dir::new().run(["--progress=none", "./{}"]).stdin(keys).ran().expect(127);
    assert_eq!(ran.err.matches("command not found").count(), 1, "{}", ran.err);
}

#[test]
fn a_command_that_cannot_be_executed_is_told_once() {
    let dir = Dir::new();
    dir.write("file", "");
    let ran = dir.run(["./file"]).stdin("a\n").ran().expect(126);
    assert_eq!(ran.err, "requeue: command cannot be executed: ./file\n");
    // It looks like a program, and is none.
    dir.write("fake", [0x7f, b'E', b'L', b'F', 0, 0]);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path("fake"), mode).unwrap();
    let ran = dir.run(["./fake"]).stdin("a\n").ran().expect(126);
    assert!(ran.err.contains("command cannot be executed: ./fake"), "{}", ran.err);
}

#[test]
fn a_broken_pipe_ends_the_run_without_a_word() {
    let dir = Dir::new();
    let mut live = dir.run(["-j1", "--progress=none", "echo"]).start();
    live.say("a");
    assert_eq!(live.out_line(), "a");
    live.close_output();
    for key in 0..1000 {
        if !live.try_say(&format!("{key}")) {
            break;
        }
    }
    assert_eq!(live.ended().expect(0).err, "");
}

/// Starts a run that waits for somebody to read its output, which nobody does: its process,
/// that of its command, and what could be read.
fn start_unread(dir: &Dir) -> (Child, String, File) {
    dir.fifo("out");
    dir.fifo("pid");
    // More than a pipe holds, and less than two do.
    let script = "yes | head -c 100000; echo $$ > pid; exec sleep 1000 #";
    let line = format!("exec \"$0\" run --line-buffer --shell '{script}' ::: k > out");
    let child = Command::new("sh")
        .args(["-c", &line, env!("CARGO_BIN_EXE_requeue")])
        .current_dir(dir.path("."))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let unread = File::open(dir.path("out")).unwrap();
    let command = dir.hear("pid").trim().to_owned();
    (child, command, unread)
}

/// What was to be said of the first signal waited for the output, and the second signal
/// for that.
#[test]
fn signals_are_heeded_while_nobody_reads_the_output() {
    let dir = Dir::new();
    let (mut child, command, unread) = start_unread(&dir);
    let requeue = child.id().to_string();
    patiently("the end of a command", move || {
        while is_alive(&command) {
            signal("TERM", &requeue);
        }
    });
    drop(unread);
    let status = patiently("the end of requeue", move || child.wait().unwrap());
    assert_eq!(status.code(), Some(143));
}

/// Only KILL ended a run whose output nobody read.
#[test]
fn the_fourth_signal_ends_it_whatever_it_waits_for() {
    let dir = Dir::new();
    let (mut child, command, unread) = start_unread(&dir);
    let status = patiently("the end of requeue", move || {
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            signal("TERM", &child.id().to_string());
        }
    });
    assert_eq!(status.code(), Some(143));
    ends(&command);
    drop(unread);
}

#[test]
fn the_end_of_the_input_waits_for_retries() {
    let dir = Dir::new();
    let script = "[ -e {} ] && echo {} || { touch {}; exit 1; }";
    let ran = dir.run(["--backoff", "5ms", "--shell", script]).stdin("a\nb\n").ran();
    assert_eq!(ran.expect(0).sorted(), ["a", "b"]);
}

#[test]
fn some_key_that_failed_for_good_is_a_failure() {
    let dir = Dir::new();
    let flags = ["--max-retries=0", "--shell", "exit {}"];
    dir.run(flags).stdin("0\n255\n3\n").ran().expect(1);
}
