//! How commands are run.

use crate::harness::Dir;

#[test]
fn key_replaces_every_placeholder() {
    let ran = Dir::new().run(["echo", "{}-{}", "x", "{}"]).stdin("k\n").ran().expect(0);
    assert_eq!(ran.out, "k-k x k\n");
}

#[test]
fn key_is_appended_without_a_placeholder() {
    let ran = Dir::new().run(["echo", "x"]).stdin("a b\n").ran().expect(0);
    assert_eq!(ran.out, "x a b\n");
}

#[test]
fn shell_is_used_only_on_request() {
    let dir = Dir::new();
    let ran = dir.run(["echo", "{}", ">", "$HOME"]).stdin("`k`;\n").ran().expect(0);
    assert_eq!(ran.out, "`k`; > $HOME\n");
    let ran = dir.run(["--shell", "echo {} | tr a-z A-Z"]).stdin("it's `k`; $x\n").ran();
    assert_eq!(ran.expect(0).out, "IT'S `K`; $X\n");
    let ran = dir.run(["--shell", "echo", "1;", "echo"]).stdin("a  b\n").ran().expect(0);
    assert_eq!(ran.out, "1\na  b\n");
}

#[test]
fn placeholders_are_parts_of_the_key() {
    let dir = Dir::new();
    let command = ["-j1", "--", "echo", "{}", "{.}", "{/}", "{//}", "{#}"];
    let ran = dir.run(command).stdin("a/b.c\nd\n").ran().expect(0);
    assert_eq!(ran.out, "a/b.c a/b b.c a 1\nd d d . 2\n");
    let script = "echo {.} '{/}' \"{//}\" {#}";
    let ran = dir.run(["--shell", script]).stdin("a b/c.d\n").ran().expect(0);
    assert_eq!(ran.out, "a b/c c.d a b 1\n");
}

#[test]
fn dry_run_prints_commands_and_runs_nothing() {
    let dir = Dir::new();
    let flags = ["--dry-run", "--store", "q", "--log", "log", "--output", "out"];
    let ran = dir.run(flags).args(["touch", "{}"]).stdin("a\nit's\na\n").ran().expect(0);
    assert_eq!(ran.out, "touch a\ntouch 'it'\\''s'\n");
    assert_eq!(std::fs::read_dir(dir.path(".")).unwrap().count(), 0);
    let ran = dir.run(["--dry-run", "--shell", "echo {}", ":::", "k"]).ran().expect(0);
    assert_eq!(ran.out, "REQUEUE_KEY=k sh -c 'echo \"${REQUEUE_KEY}\"'\n");
}

#[test]
fn environment_has_key_attempt_and_slot() {
    let dir = Dir::new();
    let script = "echo $REQUEUE_KEY $REQUEUE_ATTEMPT $REQUEUE_SLOT $OTHER; [ $REQUEUE_ATTEMPT = 3 ] #";
    let flags = ["--backoff", "1ms", "-j1", "--shell", script, ":::", "k"];
    let ran = dir.run(flags).env("OTHER", "kept").ran().expect(0);
    assert_eq!(ran.out, "k 1 1 kept\nk 2 1 kept\nk 3 1 kept\n");
}

#[test]
fn slots_are_numbered_from_one_and_not_shared() {
    let dir = Dir::new();
    dir.fifo("pipe");
    // Each command waits for the other.
    let script = "if [ {} = a ]; then echo x > pipe; else cat pipe >/dev/null; fi; echo $REQUEUE_SLOT";
    let ran = dir.run(["-j2", "--shell", script, ":::", "a", "b"]).ran().expect(0);
    assert_eq!(ran.sorted(), ["1", "2"]);
}

#[test]
fn command_has_empty_input() {
    let ran = Dir::new().run(["sh", "-c", "cat; echo end", "sh"]).stdin("a\nb\n").ran();
    assert_eq!(ran.expect(0).out, "end\nend\n");
}

#[test]
fn every_run_has_its_own_process_group() {
    let script = "set -- $(cat /proc/$$/stat); echo $5 $$ #";
    let ran = Dir::new().run(["--shell", script, ":::", "k"]).ran().expect(0);
    let numbers: Vec<_> = ran.out.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "{}", ran.out);
}

#[test]
fn run_that_exceeds_the_timeout_fails() {
    let dir = Dir::new();
    let flags =
        ["--timeout", "50ms", "--max-retries", "1", "--backoff", "1ms", "--log", "log"];
    let ran = dir.run(flags).args(["--shell", "exec sleep 1000 # ", ":::", "k"]).ran();
    let ran = ran.expect(1);
    assert!(ran.err.contains("failed: k: timed out after 2 runs"), "{}", ran.err);
    let ends = dir.events("log", "finished");
    assert!(
        ends.iter().all(|end| end["code"] == 124 && end["timeout"] == true),
        "{ends:?}"
    );
    assert_eq!(ends.len(), 2);
}

#[test]
fn run_that_ignores_term_is_killed() {
    let dir = Dir::new();
    let script = "trap '' TERM; while :; do sleep 1000; done # ";
    let flags = ["--timeout", "50ms", "--kill-after", "50ms", "--max-retries", "0"];
    let ran = dir.run(flags).args(["--shell", script, ":::", "k"]).ran().expect(1);
    assert!(ran.err.contains("timed out after 1 run"), "{}", ran.err);
}

/// A command stopped for reading from the terminal once did not receive TERM, and was killed.
#[test]
fn stopped_run_still_handles_term() {
    let script = "trap 'echo handled; exit 1' TERM; kill -STOP $$ # ";
    let flags = ["--timeout", "1s", "--kill-after", "1h", "--max-retries", "0"];
    let ran = Dir::new().run(flags).args(["--shell", script, ":::", "k"]).ran();
    assert_eq!(ran.expect(1).out, "handled\n");
}

#[test]
fn run_ends_before_its_background_processes() {
    let dir = Dir::new();
    // The descendant keeps the output open until it is released.
    dir.fifo("go");
    let script = "echo before; cat go > /dev/null & # ";
    let mut live = dir.run(["--shell", script, ":::", "k"]).start();
    assert_eq!(live.out_line(), "before");
    live.err_line("1 key: 1 ok, 0 failed");
    dir.release("go");
    live.wait().expect(0);
}

#[test]
fn program_can_contain_the_key() {
    let ran = Dir::new().run(["{}", "x"]).stdin("echo\n").ran().expect(0);
    assert_eq!(ran.out, "x\n");
}

#[test]
fn key_that_cannot_be_an_argument_fails_for_good() {
    let ran = Dir::new().run(["echo"]).stdin("a\0b\nok\n").ran().expect(1);
    assert_eq!(ran.out, "ok\n");
    assert!(ran.err.contains("could not start after 1 run"), "{}", ran.err);
}
