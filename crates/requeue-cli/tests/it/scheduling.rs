//! Rates, retries, order and priorities.

use std::thread;
use std::time::Duration;

use requeue::{Clock, SystemClock};
use serde_json::Value;

use crate::harness::{Dir, Ran, numbers};

/// A command that always fails.
const FAILS: [&str; 3] = ["sh", "-c", "exit 7"];

fn delays(dir: &Dir) -> Vec<f64> {
    dir.events("log", "retried")
        .iter()
        .map(|line| line["delay_ms"].as_f64().unwrap())
        .collect()
}

/// Runs a failing command for the key `k`, with a log.
fn fail(dir: &Dir, flags: &[&str]) -> Ran {
    dir.run(["--log", "log"]).args(flags).args(FAILS).stdin("k\n").ran()
}

#[test]
fn number_of_running_commands_is_limited_by_workers() {
    let dir = Dir::new();
    for (name, workers) in [("one", 1), ("three", 3)] {
        let keys = numbers(20);
        let workers_flag = workers.to_string();
        dir.run(["--workers", &workers_flag, "--log", name, "true"])
            .stdin(keys)
            .ran()
            .expect(0);
        let (mut running, mut most) = (0, 0);
        for line in dir.log(name) {
            match line["event"].as_str() {
                Some("started") => running += 1,
                Some("finished") => running -= 1,
                _ => {}
            }
            most = most.max(running);
        }
        assert!(most <= workers, "{most} of {workers}");
    }
}

/// This test once used the times in the log. They are the times of writing, so the second
/// start seemed to come too early after a late first one.
#[test]
fn rate_limits_starts() {
    let dir = Dir::new();
    let flags = ["--rate", "20/s", "-j4", "--log", "log", "true"];
    let before = SystemClock.now();
    dir.run(flags).stdin("a\nb\nc\nd\n").ran().expect(0);
    let took = SystemClock.now() - before;
    assert!(took >= Duration::from_millis(150), "four starts at 20/s in {took:?}");
    let started = |line: &&Value| line["event"] == "started";
    assert_eq!(dir.log("log").iter().filter(started).count(), 4);
}

#[test]
fn burst_requires_a_rate() {
    let dir = Dir::new();
    let ran = dir.run(["--burst", "5", "true"]).ran().expect(2);
    assert!(ran.err.contains("--rate"), "{}", ran.err);
    let flags = ["--rate", "1/h", "--burst", "3", "-j1", "echo"];
    assert_eq!(dir.run(flags).stdin("a\nb\nc\n").ran().expect(0).out, "a\nb\nc\n");
}

#[test]
fn key_waiting_for_the_rate_limit_is_still_merged() {
    let dir = Dir::new();
    let mut live = dir.run(["--rate", "1/h", "-j4", "echo"]).start();
    live.send("first");
    assert_eq!(live.out_line(), "first");
    for key in ["k", "k", "l", "k"] {
        live.send(key);
    }
    live.wait_for_status("ready 2  running 0/4  delayed 0  done 1  failed 0  merged 2");
    live.signal("TERM");
    let ran = live.wait().expect(143);
    assert!(ran.err.contains("2 keys left"), "{}", ran.err);
}

#[test]
fn backoff_doubles_up_to_its_maximum() {
    let dir = Dir::new();
    let ran = fail(&dir, &["--backoff", "2ms..10ms", "--max-retries", "5"]).expect(1);
    assert_eq!(delays(&dir), [2.0, 4.0, 8.0, 10.0, 10.0]);
    assert!(ran.err.contains("failed: k: exit code 7 after 6 runs"), "{}", ran.err);
    let attempts = dir.events("log", "started");
    let attempts: Vec<_> =
        attempts.iter().map(|line| line["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5, 6]);
    for (retried, started) in
        dir.events("log", "retried").iter().zip(&dir.events("log", "started")[1..])
    {
        let (planned, began) = (retried["next"].as_f64(), started["time"].as_f64());
        assert!(began >= planned, "started too early: {retried} {started}");
    }
}

#[test]
fn default_backoff_is_200_ms_doubling_for_five_retries() {
    let dir = Dir::new();
    let mut live = dir.run(["--log", "log"]).args(FAILS).start();
    live.send("k");
    live.wait_for_status("ready");
    // Two delays show the curve. They are read from the log, because on a busy machine the
    // status can miss the time between two delays.
    while dir.read("log").matches("retried").count() < 2 {
        thread::yield_now();
    }
    live.signal("INT");
    live.wait().expect(130);
    assert_eq!(delays(&dir)[..2], [200.0, 400.0]);
    let help = dir.requeue().args(["run", "--help"]).ran().expect(0).out;
    for default in
        ["[default: 200ms..5m]", "[default: 5]", "[default: unlimited]", "[default: 100]"]
    {
        assert!(help.contains(default), "{default}");
    }
}

#[test]
fn success_forgets_the_failures() {
    let dir = Dir::new();
    let script =
        "n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; [ $((n % 3)) = 2 ] #";
    let flags = ["--backoff", "1ms..1s", "--log", "log", "--shell", script];
    let mut live = dir.run(flags).start();
    live.send("k");
    live.wait_for_status("done 1");
    live.send("k");
    live.wait().expect(0);
    assert_eq!(delays(&dir), [1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn retry_rate_limits_all_retries_together() {
    let dir = Dir::new();
    let flags = ["--retry-rate", "1/h", "--retry-burst", "2", "--backoff", "0s", "-j1"];
    let mut live = dir.run(flags).args(["--log", "log"]).args(FAILS).start();
    live.send("k");
    live.wait_for_status("delayed 1");
    live.signal("TERM");
    live.wait().expect(143);
    let delays = delays(&dir);
    assert_eq!(delays[..2], [0.0, 0.0]);
    assert!(
        delays[2] > 3_000_000.0,
        "the third retry waits for about an hour: {delays:?}"
    );
}

#[test]
fn retries_can_be_disabled_or_unlimited() {
    let dir = Dir::new();
    let ran = fail(&dir, &["--max-retries", "0"]).expect(1);
    assert!(ran.err.contains("after 1 run\n"), "{}", ran.err);
    let script = "n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; [ $n = 20 ] #";
    let flags =
        ["--max-retries", "unlimited", "--backoff", "1ms", "--retry-rate", "unlimited"];
    dir.run(flags).args(["--shell", script]).stdin("k\n").ran().expect(0);
    assert_eq!(dir.read("n").trim(), "21");
}

#[test]
fn jitter_shortens_the_backoff() {
    let dir = Dir::new();
    for (name, flag, least) in
        [("all", "--jitter=full", 0.0), ("half", "--jitter=equal", 0.5)]
    {
        let flags = ["--log", name, flag, "--backoff", "8ms", "--max-retries", "12"];
        dir.run(flags).args(FAILS).stdin("k\n").ran().expect(1);
        let retried = dir.events(name, "retried");
        let parts: Vec<_> =
            retried.iter().map(|line| line["delay_ms"].as_f64().unwrap() / 8.0).collect();
        assert!(
            parts.iter().all(|part| (least..=1.0).contains(part)),
            "{flag}: {parts:?}"
        );
        assert!(
            parts.iter().any(|part| (*part - parts[0]).abs() > 1e-9),
            "{flag}: {parts:?}"
        );
    }
}

#[test]
fn exit_codes_select_what_is_retried() {
    let dir = Dir::new();
    let runs = |flags: &[&str], name: &str| {
        let flags =
            [&["--log", name, "--backoff", "1ms", "--max-retries", "1"], flags].concat();
        dir.run(flags).args(FAILS).stdin("k\n").ran().expect(1);
        dir.events(name, "started").len()
    };
    assert_eq!(runs(&["--retry-on", "7"], "a"), 2);
    assert_eq!(runs(&["--retry-on", "1-6,8"], "b"), 1);
    assert_eq!(runs(&["--no-retry-on", "7"], "c"), 1);
    assert_eq!(runs(&["--no-retry-on", "6,8-255"], "d"), 2);
    assert_eq!(runs(&["--retry-on", "1-10", "--no-retry-on", "7"], "e"), 1);
}

#[test]
fn debounced_key_runs_after_it_has_been_quiet() {
    let dir = Dir::new();
    let flags = ["--debounce", "300ms", "--log", "log", "echo"];
    let mut live = dir.run(flags).start();
    for _ in 0..5 {
        live.send("k");
    }
    live.end_input();
    assert_eq!(live.out_line(), "k");
    let ran = live.wait().expect(0);
    assert!(
        ran.err.contains("1 run, 0 retries") && ran.err.contains("merged 4 of 5 lines"),
        "{}",
        ran.err
    );
    let last = dir.events("log", "merged").last().unwrap()["time"].as_f64().unwrap();
    let began = dir.events("log", "started")[0]["time"].as_f64().unwrap();
    // The log line is older than the postponed deadline on a busy machine.
    assert!(began - last >= 0.15, "{began} {last}");
}

/// Blocks the only worker with the key `first` until all keys are read. Returns the order in
/// which the others run.
fn order(dir: &Dir, flags: &[&str], first: &str, keys: &[&str]) -> Vec<String> {
    dir.fifo("go");
    let script = "[ $REQUEUE_KEY != first ] || cat go >/dev/null; echo {}";
    let mut live = dir.run(["-j1"]).args(flags).args(["--shell", script]).start();
    live.send(first);
    live.wait_for_status("running 1/1");
    for key in keys {
        live.send(key);
    }
    live.end_input();
    live.wait_for_status(&format!("ready {}", keys.len()));
    dir.release("go");
    let ran = live.wait().expect(0);
    ran.out.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn keys_run_in_order_of_arrival() {
    assert_eq!(order(&Dir::new(), &[], "first", &["c", "a", "b"]), ["c", "a", "b"]);
}

#[test]
fn priority_is_a_word_of_the_line() {
    let dir = Dir::new();
    let lines = ["low -5", "high 9", "mid 0", "high2 9"];
    let wanted = ["high", "high2", "mid", "low"];
    assert_eq!(order(&dir, &["--priority-field", "2"], "first 0", &lines), wanted);
    let ran =
        dir.run(["--priority-field", "1", "echo"]).stdin("3 a b\nx c\n").ran().expect(2);
    assert_eq!(ran.out, "a b\n");
    assert!(
        ran.err.contains("--priority-field expects a whole number as word 1: x c"),
        "{}",
        ran.err
    );
}

#[test]
fn groups_take_turns() {
    let keys = ["red/1", "red/2", "red/3", "blue/1", "blue/2"];
    let wanted = ["red/1", "blue/1", "red/2", "blue/2", "red/3"];
    assert_eq!(order(&Dir::new(), &["--fair-by", "/"], "first", &keys), wanted);
    assert_eq!(order(&Dir::new(), &["--fair-by", "^([a-z]+)"], "first", &keys), wanted);
}

#[test]
fn fail_fast_stops_after_one_failure() {
    let dir = Dir::new();
    let flags =
        ["--fail-fast", "-j1", "--max-retries", "0", "--shell", "echo {}; [ {} = a ]"];
    let ran = dir.run(flags).stdin("a\nb\nc\nd\n").ran().expect(1);
    assert_eq!(ran.out, "a\nb\n");
    assert!(ran.err.contains("failed: b: exit code 1"), "{}", ran.err);
}

#[test]
fn key_that_later_succeeds_has_not_failed() {
    let dir = Dir::new();
    let mut live = dir.run(["--max-retries", "0", "--shell", "[ -e ok ]; #"]).start();
    live.send("k");
    live.wait_for_status("failed 1");
    dir.write("ok", "");
    live.send("k");
    live.wait().expect(0);
}

#[test]
fn run_stops_after_too_many_failures() {
    let flags = ["-j1", "--max-retries=0", "--shell", "echo {}; exit 1"];
    for (max, runs) in [("2", 2), ("100%", 10)] {
        let flags = ["--max-failures", max].into_iter().chain(flags);
        let ran = Dir::new().run(flags).stdin(numbers(20)).ran().expect(1);
        assert_eq!(ran.out.lines().count(), runs, "{max}: {}", ran.out);
        assert!(ran.err.contains(&format!("{} keys left", 20 - runs)), "{}", ran.err);
    }
}

/// The default of 10 retries per second made 10,000 keys with five retries take 83 minutes.
#[test]
fn retries_are_not_limited_by_default() {
    let dir = Dir::new();
    let flags = ["-j8", "--backoff=1ms", "--max-retries=1", "--log", "log", "false"];
    dir.run(flags).stdin(numbers(200)).ran().expect(1);
    let retried = dir.events("log", "retried");
    assert_eq!(retried.len(), 200);
    assert!(retried.iter().all(|line| line["delay_ms"].as_f64().unwrap() < 2.0));
}
