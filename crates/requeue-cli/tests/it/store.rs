//! `requeue run` and the other verbs on a store, one process at a time.

use crate::harness::{Dir, WAITS};
use crate::test_store::{TestStore, embedded, on_each_server, on_each_store};

/// A command that always fails with an error message.
const FAILS: [&str; 2] = ["--shell", "echo oh no >&2; exit 3 #"];

/// Makes a key fail for good.
pub(crate) fn make_dead(store: &TestStore, key: &str) {
    let flags = ["--max-retries", "1", "--backoff", "1ms", "--progress=none"];
    let ran = store.run(&flags).args(FAILS).stdin(format!("{key}\n")).ran().expect(1);
    assert!(ran.err.contains("exit code 3 after 2 runs: oh no"), "{}", ran.err);
}

#[test]
fn run_processes_the_input_until_the_queue_is_empty() {
    on_each_store(|store| {
        let ran = store.run(&["echo", "ran"]).stdin("a\nb\nb\n").ran().expect(0);
        assert_eq!(ran.sorted(), ["ran a", "ran b"]);
        assert!(ran.err.contains("merged 1 of 3 lines"), "{}", ran.err);
        let status = store.status();
        for count in ["ready", "delayed", "processing", "dirty", "failing", "dead"] {
            assert_eq!(status[count], 0, "{count}: {status}");
        }
    });
}

/// A merged line was once logged before the add that it was merged with.
#[test]
fn add_is_logged_before_its_merged_lines() {
    on_each_store(|store| {
        let flags = ["--log", "log", "--progress=none", "true"];
        store.run(&flags).stdin("a\na\n").ran().expect(0);
        let events = store.dir.log("log").into_iter().map(|line| line["event"].clone());
        let events: Vec<_> =
            events.filter(|event| event == "added" || event == "merged").collect();
        assert_eq!(events, ["added", "merged"]);
    });
}

/// The second line was once merged with the first, which was never added.
#[test]
fn invalid_line_is_rejected_each_time() {
    let store = embedded();
    let long = "x".repeat(5000);
    let ran = store.run(&["echo"]).stdin(format!("{long}\n{long}\n")).ran().expect(2);
    assert_eq!(ran.err.matches("rejected line").count(), 2, "{}", ran.err);
    assert!(!ran.err.contains("merged"), "{}", ran.err);
}

#[test]
fn added_keys_are_shown_by_status() {
    on_each_store(|store| {
        let ran = store.requeue().args(["add", "a", "b"]).ran().expect(0);
        assert_eq!(
            (ran.out.as_str(), ran.said().as_str()),
            ("", "requeue: 2 keys: 2 added\n")
        );
        let ran = store.requeue().args(["add", "-0"]).stdin(b"b\0c\n".to_vec()).ran();
        assert_eq!(ran.expect(0).said(), "requeue: 2 keys: 1 added, 1 already queued\n");
        let after = ["add", "--after", "1h", "later"];
        let ran = store.requeue().args(after).ran().expect(0);
        assert_eq!(ran.said(), "requeue: 1 key: 1 delayed\n");
        let status = store.status();
        assert_eq!((&status["ready"], &status["delayed"]), (&3.into(), &1.into()));
        assert!(status["oldest_ready_ms"].is_u64(), "{status}");
        assert_eq!(status["paused"], false);
        let text = store.requeue().arg("status").ran().expect(0).out;
        assert!(text.contains("ready             3  oldest "), "{text}");
        assert!(text.contains("delayed           1\n"), "{text}");
    });
}

/// An empty argument, such as an unset shell variable, was once skipped silently.
#[test]
fn empty_key_is_rejected() {
    let message = "requeue: rejected line: the key is empty\n";
    let store = embedded();
    let ran = store.requeue().args(["add", "", "k"]).ran().expect(2);
    assert_eq!(ran.said(), format!("{message}requeue: 1 key: 1 added\n"));
    assert_eq!(store.status()["ready"], 1);
}

/// Not on servers: about one key in 256 is chosen by age there, not by priority.
#[test]
fn keys_run_by_priority() {
    let store = embedded();
    let add = |field, lines: &str| {
        store.requeue().args(["add", "--priority-field", field]).stdin(lines).ran()
    };
    let ran = add("2", "low -5\nhigh 9\nmid 0\nlow 1\n").expect(0);
    assert_eq!(ran.said(), "requeue: 4 keys: 3 added, 1 already queued\n");
    let ran = store
        .run(&["-j1", "--priority-field=1", "echo"])
        .stdin("-7 new\n")
        .ran()
        .expect(0);
    let before: Vec<_> = ran.out.lines().filter(|key| *key != "new").collect();
    assert_eq!(before, ["high", "low", "mid"]);
    let ran = add("1", "500 far\nx none\n3 near\n").expect(2);
    assert_eq!(ran.err.matches("rejected line: ").count(), 2, "{}", ran.err);
    assert!(ran.err.contains(": 500 far\n"), "{}", ran.err);
    let none = "rejected line: --priority-field expects a whole number as word 1: x none";
    assert!(ran.err.contains(none), "{}", ran.err);
    let ran =
        store.run(&["--priority-field=1", "echo"]).stdin("-129 low\n").ran().expect(2);
    assert!(
        ran.err.contains("rejected line: ") && ran.err.contains("-129"),
        "{}",
        ran.err
    );
    assert_eq!(ran.out, "near\n");
}

#[test]
fn worker_processes_keys_until_a_signal() {
    on_each_store(|store| {
        store.add(&["a", "b"]);
        let mut live = store.run(&["--worker", "-j1", "echo"]).start();
        assert_eq!((live.out_line().as_str(), live.out_line().as_str()), ("a", "b"));
        live.wait_for_status("ready 0  running 0/1  delayed 0  done 2");
        live.signal("TERM");
        live.wait().expect(0);
    });
}

#[test]
fn unfinished_keys_stay_in_the_store() {
    on_each_store(|store| {
        store.dir.pipes();
        store.add(&["slow", "b"]);
        let script = "echo $$ > pid; cat go > /dev/null; echo {}";
        let mut live = store.run(&["--worker", "-j1", "--shell", script]).start();
        store.dir.receive("pid");
        // The command can send its pid before requeue counts it as running. On a busy machine,
        // the signal then found nothing to wait for.
        live.wait_for_status("running 1/1");
        live.signal("TERM");
        live.err_line("waiting for 1 running command");
        live.signal("TERM");
        let ran = live.wait().expect(143);
        assert!(ran.err.contains("2 keys left"), "{}", ran.err);
        let status = store.status();
        assert_eq!((&status["ready"], &status["processing"]), (&2.into(), &0.into()));
    });
}

#[test]
fn key_added_while_running_runs_once_more() {
    on_each_store(|store| {
        store.dir.pipes();
        let mut live = store.run(&["-j4", "--shell", WAITS]).start();
        live.send("k");
        store.dir.receive("pid");
        (0..3).for_each(|_| live.send("k"));
        live.end_input();
        live.wait_for_status("merged 2");
        store.dir.write("second", "");
        store.dir.release("go");
        assert_eq!(live.wait().expect(0).out, "k\nk\n");
    });
}

#[test]
fn command_gets_a_growing_token_and_its_attempt() {
    on_each_store(|store| {
        let script = "echo $REQUEUE_TOKEN $REQUEUE_ATTEMPT; [ $REQUEUE_ATTEMPT = 2 ] #";
        let ran = store.run(&["--backoff", "1ms", "--shell", script, ":::", "k"]).ran();
        let ran = ran.expect(0);
        let numbers: Vec<u64> =
            ran.out.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert!(numbers[0] > 0 && numbers[2] > numbers[0], "{numbers:?}");
        assert_eq!((numbers[1], numbers[3]), (1, 2));
    });
}

#[test]
fn key_that_failed_for_good_is_dead_with_its_reason() {
    on_each_store(|store| {
        make_dead(store, "k");
        let dead = store.dead();
        assert_eq!(dead.len(), 1);
        assert_eq!(
            (&dead[0]["key"], &dead[0]["reason"]),
            (&"k".into(), &"exit code 3: oh no".into())
        );
        assert!(
            dead[0]["since_ms"].is_u64() && dead[0]["worker"].is_string(),
            "{dead:?}"
        );
        let text = store.requeue().args(["dead", "list"]).ran().expect(0).out;
        assert!(
            text.starts_with("DEAD KEY  ") && text.contains("exit code 3: oh no"),
            "{text}"
        );
        assert_eq!(store.status()["dead"], 1);
    });
}

#[test]
fn dead_keys_can_be_revived_and_dropped() {
    on_each_store(|store| {
        make_dead(store, "a");
        make_dead(store, "b");
        let verb = |args: &[&str]| store.requeue().arg("dead").args(args).ran();
        let ran = verb(&["revive", "a", "other"]).expect(1);
        assert_eq!(ran.err, "requeue: revived 1 key; 1 key was not dead\n");
        assert_eq!(
            store.run(&["echo"]).ran().expect(0).out,
            "a\n",
            "and no key from stdin"
        );
        assert_eq!(verb(&["drop", "--all"]).expect(0).err, "requeue: dropped 1 key\n");
        assert_eq!(store.dead().len(), 0);
        verb(&["drop"]).expect(2);
        verb(&["revive", "--all", "k"]).expect(2);
    });
}

/// The list once ended after 1000 of 5000 keys, and said nothing.
#[test]
fn list_of_dead_keys_says_what_it_leaves_out() {
    on_each_store(|store| {
        make_dead(store, "a");
        make_dead(store, "b");
        let list = ["dead", "list", "--limit", "1"];
        let ran = store.requeue().args(list).ran().expect(0);
        assert_eq!(ran.err, "requeue: 1 dead key is not listed; --limit 2 lists all\n");
        let all = store.requeue().args(["dead", "list"]).ran().expect(0);
        assert_eq!(all.err, "");
    });
}

#[test]
fn priority_is_given_with_the_keys() {
    let store = embedded();
    let add = |args: &[&str]| store.requeue().arg("add").args(args).ran();
    add(&["low"]).expect(0);
    add(&["--priority", "5", "high"]).expect(0);
    add(&["--priority", "-5", "last"]).expect(0);
    let ran = store.run(&["-j1", "echo"]).ran().expect(0);
    assert_eq!(ran.out, "high\nlow\nlast\n");
    let ran = add(&["--priority", "128", "k"]).expect(2);
    assert!(ran.err.contains("from -128 to 127"), "{}", ran.err);
}

/// `--retry-rate` applies to all workers on a store, or to one process.
#[test]
fn rate_of_retries_can_be_of_one_process() {
    on_each_store(|store| {
        let flags = ["--retry-rate", "1/h", "--retry-rate-scope", "process"];
        let more = ["--backoff=1ms", "--retry-burst=2", "-j1", "--shell", "exit 1 #"];
        let mut live = store.run(&flags).args(more).start();
        live.send("k");
        live.wait_for_status("delayed 1 (next ");
        live.signal("USR1");
        live.err_line("retrying: k: exit code 1 after 3 runs");
        live.signal("INT");
        live.wait().expect(130);
    });
}

#[test]
fn adding_a_dead_key_revives_it() {
    on_each_store(|store| {
        make_dead(store, "k");
        let ran = store.requeue().args(["add", "k", "new"]).ran().expect(0);
        assert_eq!(ran.said(), "requeue: 2 keys: 1 added, 1 revived\n");
        assert_eq!(store.run(&["echo"]).ran().expect(0).sorted(), ["k", "new"]);
    });
}

#[test]
fn failing_keys_are_listed_with_their_error_and_can_be_forgotten() {
    on_each_store(|store| {
        make_dead(store, "d");
        let mut live = store.run(&["--backoff", "1h"]).args(FAILS).start();
        live.send("k");
        live.end_input();
        live.wait_for_status("delayed 1 (next ");
        live.signal("INT");
        live.wait().expect(130);
        let status = store.status();
        let failing = &status["failing_keys"][0];
        assert_eq!((&failing["key"], &failing["failures"]), (&"k".into(), &1.into()));
        assert_eq!(failing["error"], "exit code 3: oh no");
        assert!(failing["retry_in_ms"].as_u64().unwrap() > 3_000_000, "{status}");
        let text = store.requeue().arg("status").ran().expect(0).out;
        assert!(
            text.contains("FAILING KEY") && text.contains("exit code 3: oh no"),
            "{text}"
        );
        let ran = store.requeue().args(["forget", "k"]).ran().expect(0);
        assert_eq!(ran.err, "requeue: forgot the failures of 1 key\n");
        let ran =
            store.requeue().args(["forget", "k", "k", "d", "other"]).ran().expect(1);
        let message = "forgot the failures of 1 key; 2 keys were not queued, or dead\n";
        assert!(ran.err.ends_with(message), "{}", ran.err);
        assert_eq!(store.status()["failing"], 0);
    });
}

#[test]
fn paused_queue_starts_no_keys() {
    on_each_store(|store| {
        store.add(&["k"]);
        let ran = store.requeue().arg("pause").ran().expect(0);
        assert!(ran.err.starts_with("requeue: paused "), "{}", ran.err);
        assert_eq!(store.status()["paused"], true);
        let mut live = store.run(&["--worker", "echo"]).start();
        live.err_line("is paused; no key starts until requeue resume");
        live.wait_for_status("ready 1  running 0/");
        live.signal("TERM");
        assert_eq!(live.wait().expect(0).out, "", "it was drained");
        store.requeue().arg("resume").ran().expect(0);
        assert_eq!(store.run(&["echo"]).ran().expect(0).out, "k\n");
    });
}

#[test]
fn run_waits_for_a_paused_queue() {
    on_each_server(|store| {
        store.create();
        store.requeue().arg("pause").ran().expect(0);
        let mut live = store.run(&["echo"]).start();
        live.send("k");
        live.end_input();
        live.err_line("is paused");
        store.requeue().arg("resume").ran().expect(0);
        assert_eq!(live.wait().expect(0).out, "k\n");
    });
}

#[test]
fn reading_pauses_while_too_many_keys_are_queued() {
    on_each_store(|store| {
        store.dir.fifo("go");
        let script = "[ {} != 0 ] || cat go > /dev/null; echo {}";
        let flags = ["-j1", "--max-queued", "3", "--shell", script];
        let mut live = store.run(&flags).start();
        live.send("0");
        live.wait_for_status("running 1/1");
        (1..20).for_each(|key| live.send(&key.to_string()));
        live.end_input();
        live.wait_for_status("ready 3  running 1/1");
        store.dir.release("go");
        assert_eq!(live.wait().expect(0).sorted().len(), 20);
    });
}

#[test]
fn queue_in_a_store_has_metrics() {
    use std::io::{Read, Write};
    on_each_store(|store| {
        let mut live = store.run(&["--metrics", "0", "echo"]).start();
        let message = live.err_line("metrics at http://");
        live.send("a");
        live.wait_for_status("done 1");
        let address =
            message.split("http://").nth(1).unwrap().trim_end_matches("/metrics");
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        client.read_to_string(&mut page).unwrap();
        for line in [
            "requeue_dead{name=\"run\"} 0\n",
            "requeue_runs_total{",
            "workqueue_adds_total{name=\"run\"} 1\n",
            "workqueue_depth{name=\"run\"} 0\n",
            "workqueue_work_duration_seconds_count{name=\"run\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        live.wait().expect(0);
    });
}

#[test]
fn store_can_be_given_as_a_flag() {
    let dir = Dir::new();
    dir.requeue().args(["add", "--store", "./q", "k"]).ran().expect(0);
    let ran = dir.run(["--store", "./q", "--worker", "--fail-fast"]);
    let ran = ran.args(["--max-retries=0", "--shell", "echo {}; false"]).ran().expect(1);
    assert_eq!(ran.out, "k\n");
}

#[test]
fn current_data_needs_no_migration() {
    on_each_store(|store| {
        store.add(&["k"]);
        for args in [&["migrate"][..], &["migrate", "--dry-run"]] {
            let ran = store.requeue().args(args).ran().expect(0);
            assert!(ran.err.contains("nothing to do"), "{}", ran.err);
        }
        assert_eq!(store.status()["ready"], 1);
    });
}

/// `--rate` once limited one process only, and the help did not say so.
#[test]
fn rate_of_starts_can_be_shared_by_all_workers() {
    on_each_server(|store| {
        store.add(&["a", "b", "c", "d"]);
        let flags =
            ["--worker", "--rate", "1/h", "--rate-scope", "store", "--burst", "2"];
        let worker = || store.run(&flags).arg("echo").start();
        let [mut one, two] = [worker(), worker()];
        one.err_line("working on ");
        while store.status()["ready"] != 2 {}
        let mut ran = 0;
        for worker in [one, two] {
            worker.signal("TERM");
            ran += worker.wait().expect(0).out.lines().count();
        }
        assert_eq!(ran, 2);
    });
}
