//! Signals, exit codes, broken pipes.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use crate::harness::{Dir, Live, is_alive, numbers, signal, wait_for_exit, with_timeout};

/// Starts a run in which the key `slow` executes `script`, which sends its pid.
fn start_slow(dir: &Dir, flags: &[&str], script: &str) -> (Live, String) {
    dir.pipes();
    let script = format!("if [ {{}} = slow ]; then {script}; fi; echo {{}}");
    let mut live = dir.run(["-j1"]).args(flags).args(["--shell", &script]).start();
    for key in ["slow", "b", "c"] {
        live.send(key);
    }
    let pid = dir.receive("pid").trim().to_owned();
    live.wait_for_status("ready 2  running 1/1");
    (live, pid)
}

/// Sends its pid and waits.
const WAITS: &str = "echo $$ > pid; cat go >/dev/null";

#[test]
fn first_signal_waits_for_running_commands() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let dir = Dir::new();
        let (mut live, _) = start_slow(&dir, &[], WAITS);
        live.signal(signal);
        live.err_line("waiting for 1 running command");
        dir.release("go");
        let ran = live.wait().expect(code);
        assert_eq!(ran.out, "slow\n", "running commands finish, others do not start");
        assert!(ran.err.contains("2 keys left"), "{}", ran.err);
    }
}

#[test]
fn second_signal_terminates_running_commands() {
    let dir = Dir::new();
    let (mut live, pid) = start_slow(&dir, &["--log", "log"], WAITS);
    live.signal("INT");
    live.err_line("waiting for 1 running");
    live.signal("INT");
    let ran = live.wait().expect(130);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("3 keys left"), "{}", ran.err);
    wait_for_exit(&pid);
    assert_eq!(dir.events("log", "drained")[0]["left"], 3);
}

#[test]
fn third_signal_kills_commands_that_ignore_term() {
    let dir = Dir::new();
    let script =
        "trap 'echo term > received' TERM; echo $$ > pid; while :; do cat go; done";
    let (mut live, pid) = start_slow(&dir, &["--kill-after", "1h"], script);
    live.signal("TERM");
    live.err_line("waiting for 1 running command; press Ctrl-C again to send TERM");
    live.signal("TERM");
    live.err_line("sent TERM to 1 running command; KILL follows in 1h00m or on Ctrl-C");
    // Its cat was terminated; the script itself handles the signal and continues.
    live.wait_for_status("running 1/1");
    live.signal("TERM");
    live.wait().expect(143);
    wait_for_exit(&pid);
}

#[test]
fn commands_that_ignore_term_are_killed_after_kill_after() {
    let dir = Dir::new();
    let script = "trap '' TERM; echo $$ > pid; while :; do cat go; done";
    let (mut live, pid) = start_slow(&dir, &["--kill-after", "100ms"], script);
    live.signal("TERM");
    live.err_line("waiting for 1 running");
    live.signal("TERM");
    live.wait().expect(143);
    wait_for_exit(&pid);
}

#[test]
fn grandchildren_are_killed_with_their_command() {
    let dir = Dir::new();
    // The grandchild ignores TERM, but its parent does not.
    let script = "sh -c 'trap \"\" TERM; echo $$ > pid; while :; do cat go; done' & wait";
    let (mut live, pid) = start_slow(&dir, &[], script);
    live.signal("INT");
    live.err_line("waiting for 1 running");
    live.signal("INT");
    live.wait().expect(130);
    wait_for_exit(&pid);
}

#[test]
fn quit_kills_at_once() {
    let dir = Dir::new();
    let (live, pid) =
        start_slow(&dir, &[], "trap '' TERM; echo $$ > pid; while :; do cat go; done");
    live.signal("QUIT");
    live.wait().expect(131);
    wait_for_exit(&pid);
}

/// Commands of a killed requeue once kept running.
#[test]
fn commands_end_with_a_killed_requeue() {
    let script = "sh -c 'echo $$ > pid; while :; do cat go; done' & wait";
    for (flags, script) in [(&[][..], WAITS), (&["--kill-after", "100ms"], script)] {
        let dir = Dir::new();
        let script =
            script.replacen("echo", "trap '' TERM; echo", usize::from(!flags.is_empty()));
        let (live, pid) = start_slow(&dir, flags, &script);
        live.signal("KILL");
        wait_for_exit(&pid);
        assert_eq!(live.wait().code, None);
    }
}

/// A daemon started by a finished command is not a command.
#[test]
fn killed_requeue_ends_only_running_commands() {
    let dir = Dir::new();
    dir.pipes();
    let script = "setsid sh -c 'echo $$ > pid; cat go' > /dev/null 2>&1 & #";
    let mut live = dir.run(["--shell", script]).start();
    live.send("k");
    let pid = dir.receive("pid").trim().to_owned();
    live.wait_for_status("done 1");
    live.signal("KILL");
    live.wait();
    assert!(is_alive(&pid));
    dir.release("go");
    wait_for_exit(&pid);
}

/// Waits until a process is in a state, such as `T` for stopped.
fn wait_for_state(pid: &str, state: char) {
    let path = format!("/proc/{pid}/stat");
    with_timeout("waiting for a state", move || {
        let has_state = || {
            let stat = std::fs::read_to_string(&path).unwrap();
            stat.rsplit(')').next().unwrap().trim().starts_with(state)
        };
        while !has_state() {
            std::thread::yield_now();
        }
    });
}

/// Ctrl-Z once stopped only requeue; its commands kept running.
#[test]
fn suspending_stops_commands_and_resuming_continues_them() {
    let dir = Dir::new();
    let (live, pid) = start_slow(&dir, &[], WAITS);
    live.signal("TSTP");
    let requeue = live.pid().to_string();
    wait_for_state(&requeue, 'T');
    wait_for_state(&pid, 'T');
    live.signal_now("CONT");
    wait_for_state(&requeue, 'S');
    wait_for_state(&pid, 'S');
    dir.release("go");
    assert_eq!(live.wait().expect(0).out, "slow\nb\nc\n");
}

#[test]
fn signal_with_no_work_left_is_a_success() {
    let dir = Dir::new();
    dir.fifo("go");
    let mut live = dir.run(["--shell", "cat go > /dev/null; echo {}"]).start();
    live.send("k");
    live.end_input();
    live.wait_for_status("running 1/");
    live.signal("INT");
    live.err_line("waiting for 1 running");
    dir.release("go");
    assert_eq!(live.wait().expect(0).out, "k\n");
}

#[test]
fn signal_while_idle_ends_at_once() {
    let dir = Dir::new();
    let mut live = dir.run(["--", "echo"]).start();
    live.send("k");
    assert_eq!(live.out_line(), "k");
    live.signal("TERM");
    // The input is still open, so there may be work left.
    assert_eq!(live.wait_with_open_input(), Some(143));
}

#[test]
fn key_waiting_for_a_retry_is_left_by_a_signal() {
    let dir = Dir::new();
    let mut live = dir.run(["--backoff", "1h", "--", "false"]).start();
    live.send("k");
    live.end_input();
    live.wait_for_status("delayed 1 (next ");
    live.signal("INT");
    let ran = live.wait().expect(130);
    assert!(ran.err.contains("1 key left; 1 waiting for a retry"), "{}", ran.err);
    assert!(ran.err.contains("retrying: k: exit code 1 after 1 run"), "{}", ran.err);
}

#[test]
fn missing_command_is_reported_once_and_not_retried() {
    let keys = numbers(1000);
    let ran =
        Dir::new().run(["no-such-command", "{}"]).stdin(keys.clone()).ran().expect(127);
    assert_eq!(ran.err, "requeue: command not found: no-such-command\n");
    let ran = Dir::new().run(["echo {}"]).stdin("a\n").ran().expect(127);
    let why = "command not found: echo a (to run a command line, add --shell)";
    assert!(ran.err.contains(why), "{}", ran.err);
    let ran = Dir::new().run(["--progress=none", "./{}"]).stdin(keys).ran().expect(127);
    assert_eq!(ran.err.matches("command not found").count(), 1, "{}", ran.err);
}

#[test]
fn command_that_cannot_be_executed_is_reported_once() {
    let dir = Dir::new();
    dir.write("file", "");
    let ran = dir.run(["./file"]).stdin("a\n").ran().expect(126);
    assert_eq!(ran.err, "requeue: cannot execute command: ./file\n");
    // An ELF header without a program.
    dir.write("fake", [0x7f, b'E', b'L', b'F', 0, 0]);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path("fake"), mode).unwrap();
    let ran = dir.run(["./fake"]).stdin("a\n").ran().expect(126);
    assert!(ran.err.contains("cannot execute command: ./fake"), "{}", ran.err);
}

/// `… | requeue run … | head -2` once ran three of ten keys, said nothing and exited with 0.
#[test]
fn broken_pipe_with_work_left_is_reported() {
    let dir = Dir::new();
    let mut live = dir.run(["-j1", "--progress=none", "echo"]).start();
    live.send("a");
    assert_eq!(live.out_line(), "a");
    live.close_output();
    for key in 0..1000 {
        if !live.try_send(&format!("{key}")) {
            break;
        }
    }
    let err = live.wait().expect(141).err;
    assert!(err.contains("the output was closed"), "{err}");
    assert!(err.contains("left") || err.contains("input not read to its end"), "{err}");
}

#[test]
fn broken_pipe_after_the_last_key_is_a_success() {
    let dir = Dir::new();
    dir.fifo("go");
    let script = "cat go > /dev/null; echo x; echo x; echo x #";
    let mut live = dir.run(["--shell", script, ":::", "k"]).start();
    live.wait_for_status("running 1/");
    live.close_output();
    dir.release("go");
    live.wait().expect(0);
}

/// Starts a run that blocks because its output is not read. Returns requeue, the pid of its
/// command, and the unread output.
fn start_unread(dir: &Dir) -> (Child, String, File) {
    dir.fifo("out");
    dir.fifo("pid");
    // More than one pipe holds, and less than two.
    let script = "yes | head -c 100000; echo $$ > pid; exec sleep 1000 #";
    let line = format!("exec \"$0\" run --line-buffer --shell '{script}' ::: k > out");
    let child = Command::new("sh")
        .args(["-c", &line, env!("CARGO_BIN_EXE_requeue")])
        .current_dir(dir.path("."))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let unread = File::open(dir.path("out")).unwrap();
    let command = dir.receive("pid").trim().to_owned();
    (child, command, unread)
}

/// The message about the first signal once waited for the output, and the second signal waited
/// for that message.
#[test]
fn signals_work_while_output_is_blocked() {
    let dir = Dir::new();
    let (mut child, command, unread) = start_unread(&dir);
    let requeue = child.id().to_string();
    with_timeout("waiting for the command", move || {
        while is_alive(&command) {
            signal("TERM", &requeue);
        }
    });
    drop(unread);
    let status = with_timeout("waiting for requeue", move || child.wait().unwrap());
    assert_eq!(status.code(), Some(143));
}

/// Only KILL once ended a run whose output was not read.
#[test]
fn fourth_signal_exits_at_once() {
    let dir = Dir::new();
    let (mut child, command, unread) = start_unread(&dir);
    let status = with_timeout("waiting for requeue", move || {
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            signal("TERM", &child.id().to_string());
        }
    });
    assert_eq!(status.code(), Some(143));
    wait_for_exit(&command);
    drop(unread);
}

#[test]
fn end_of_input_waits_for_retries() {
    let dir = Dir::new();
    let script = "[ -e {} ] && echo {} || { touch {}; exit 1; }";
    let ran = dir.run(["--backoff", "5ms", "--shell", script]).stdin("a\nb\n").ran();
    assert_eq!(ran.expect(0).sorted(), ["a", "b"]);
}

#[test]
fn key_that_failed_for_good_sets_the_exit_code() {
    let dir = Dir::new();
    let flags = ["--max-retries=0", "--shell", "exit {}"];
    dir.run(flags).stdin("0\n255\n3\n").ran().expect(1);
}
