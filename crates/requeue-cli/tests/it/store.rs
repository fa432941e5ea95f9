//! The run and the verbs on a store: one process at a time.

use crate::harness::{Dir, WAITS};
use crate::stores::{Home, embedded, on_each_server, on_each_store};

/// Fails each time, and says why.
const FAILS: [&str; 2] = ["--shell", "echo oh no >&2; exit 3 #"];

/// Gives a key up.
pub(crate) fn make_dead(home: &Home, key: &str) {
    let flags = ["--max-retries", "1", "--backoff", "1ms", "--progress=none"];
    let ran = home.run(&flags).args(FAILS).stdin(format!("{key}\n")).ran().expect(1);
    assert!(ran.err.contains("exit code 3 after 2 runs: oh no"), "{}", ran.err);
}

#[test]
fn keys_of_the_input_are_run_until_the_queue_is_empty() {
    on_each_store(|home| {
        let ran = home.run(&["echo", "ran"]).stdin("a\nb\nb\n").ran().expect(0);
        assert_eq!(ran.sorted(), ["ran a", "ran b"]);
        assert!(ran.err.contains("merging saved 1 run of 3"), "{}", ran.err);
        let status = home.status();
        for count in ["ready", "delayed", "processing", "dirty", "failing", "dead"] {
            assert_eq!(status[count], 0, "{count}: {status}");
        }
    });
}

/// A line that was merged with one that was still on its way to the store was told first.
#[test]
fn a_key_is_added_before_it_is_merged() {
    on_each_store(|home| {
        let flags = ["--log", "log", "--progress=none", "true"];
        home.run(&flags).stdin("a\na\n").ran().expect(0);
        let told = home.dir.log("log").into_iter().map(|line| line["event"].clone());
        let told: Vec<_> =
            told.filter(|event| event == "added" || event == "merged").collect();
        assert_eq!(told, ["added", "merged"]);
    });
}

/// The second was told as merged with the first, which was never added.
#[test]
fn a_line_that_no_store_takes_is_left_out_each_time() {
    let home = embedded();
    let long = "x".repeat(5000);
    let ran = home.run(&["echo"]).stdin(format!("{long}\n{long}\n")).ran().expect(2);
    assert_eq!(ran.err.matches("line left out").count(), 2, "{}", ran.err);
    assert!(!ran.err.contains("merging"), "{}", ran.err);
}

#[test]
fn added_keys_wait_in_the_store() {
    on_each_store(|home| {
        let ran = home.requeue().args(["add", "a", "b"]).ran().expect(0);
        assert_eq!(
            (ran.out.as_str(), ran.err.as_str()),
            ("", "requeue: 2 keys: 2 added\n")
        );
        let ran = home.requeue().args(["add", "-0"]).stdin(b"b\0c\n".to_vec()).ran();
        assert_eq!(ran.expect(0).err, "requeue: 2 keys: 1 added, 1 already there\n");
        let after = ["add", "--after", "1h", "later"];
        let ran = home.requeue().args(after).ran().expect(0);
        assert_eq!(ran.err, "requeue: 1 key: 1 delayed\n");
        let status = home.status();
        assert_eq!((&status["ready"], &status["delayed"]), (&3.into(), &1.into()));
        assert!(status["oldest_ready_ms"].is_u64(), "{status}");
        assert_eq!(status["paused"], false);
        let text = home.requeue().arg("status").ran().expect(0).out;
        assert!(text.contains("ready             3  the oldest for "), "{text}");
        assert!(text.contains("delayed           1\n"), "{text}");
    });
}

/// A word that was empty, as a variable of a shell that is not set makes it, was passed over
/// without a word.
#[test]
fn an_empty_key_is_left_out_and_told() {
    let told = "requeue: line left out, the key is empty\n";
    let home = embedded();
    let ran = home.requeue().args(["add", "", "k"]).ran().expect(2);
    assert_eq!(ran.err, format!("{told}requeue: 1 key: 1 added\n"));
    assert_eq!(home.status()["ready"], 1);
}

/// On a server about one key in 256 is the oldest and not the most important one.
#[test]
fn keys_of_a_store_run_by_priority() {
    let home = embedded();
    let add = |field, lines: &str| {
        home.requeue().args(["add", "--priority", field]).stdin(lines).ran()
    };
    let ran = add("2", "low -5\nhigh 9\nmid 0\nlow 1\n").expect(0);
    assert_eq!(ran.err, "requeue: 4 keys: 3 added, 1 already there\n");
    let ran =
        home.run(&["-j1", "--priority=1", "echo"]).stdin("-7 new\n").ran().expect(0);
    let before: Vec<_> = ran.out.lines().filter(|key| *key != "new").collect();
    assert_eq!(before, ["high", "low", "mid"]);
    let ran = add("1", "500 far\nx none\n3 near\n").expect(2);
    let far = "line left out, the priority 500 is not from -128 to 127: 500 far";
    let none = "line left out, --priority wants a whole number as word 1: x none";
    assert!(ran.err.contains(far) && ran.err.contains(none), "{}", ran.err);
    let ran = home.run(&["--priority=1", "echo"]).stdin("-129 low\n").ran().expect(2);
    assert!(ran.err.contains("the priority -129 is not from"), "{}", ran.err);
    assert_eq!(ran.out, "near\n");
}

#[test]
fn a_worker_takes_keys_until_a_signal() {
    on_each_store(|home| {
        home.add(&["a", "b"]);
        let mut live = home.run(&["--worker", "-j1", "echo"]).start();
        assert_eq!((live.out_line().as_str(), live.out_line().as_str()), ("a", "b"));
        live.wait_for_status("ready 0  running 0/1  delayed 0  done 2");
        live.signal("TERM");
        live.ended().expect(0);
    });
}

#[test]
fn what_a_signal_leaves_undone_stays_in_the_store() {
    on_each_store(|home| {
        home.dir.pipes();
        home.add(&["slow", "b"]);
        let script = "echo $$ > pid; cat go > /dev/null; echo {}";
        let mut live = home.run(&["--worker", "-j1", "--shell", script]).start();
        home.dir.hear("pid");
        live.signal("TERM");
        live.err_line("finishing what runs (1)");
        live.signal("TERM");
        let ran = live.ended().expect(143);
        assert!(ran.err.contains("2 keys left"), "{}", ran.err);
        let status = home.status();
        assert_eq!((&status["ready"], &status["processing"]), (&2.into(), &0.into()));
    });
}

#[test]
fn a_key_that_comes_again_while_it_runs_runs_once_more() {
    on_each_store(|home| {
        home.dir.pipes();
        let mut live = home.run(&["-j4", "--shell", WAITS]).start();
        live.say("k");
        home.dir.hear("pid");
        (0..3).for_each(|_| live.say("k"));
        live.end_input();
        live.wait_for_status("merged 2");
        home.dir.write("second", "");
        home.dir.release("go");
        assert_eq!(live.ended().expect(0).out, "k\nk\n");
    });
}

#[test]
fn a_command_is_told_a_token_that_grows_and_its_attempt() {
    on_each_store(|home| {
        let script = "echo $REQUEUE_TOKEN $REQUEUE_ATTEMPT; [ $REQUEUE_ATTEMPT = 2 ] #";
        let ran = home.run(&["--backoff", "1ms", "--shell", script, ":::", "k"]).ran();
        let ran = ran.expect(0);
        let numbers: Vec<u64> =
            ran.out.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert!(numbers[0] > 0 && numbers[2] > numbers[0], "{numbers:?}");
        assert_eq!((numbers[1], numbers[3]), (1, 2));
    });
}

#[test]
fn a_key_that_is_given_up_is_dead_with_its_reason() {
    on_each_store(|home| {
        make_dead(home, "k");
        let dead = home.dead();
        assert_eq!(dead.len(), 1);
        assert_eq!(
            (&dead[0]["key"], &dead[0]["reason"]),
            (&"k".into(), &"exit code 3: oh no".into())
        );
        assert!(
            dead[0]["since_ms"].is_u64() && dead[0]["worker"].is_string(),
            "{dead:?}"
        );
        let text = home.requeue().args(["dead", "list"]).ran().expect(0).out;
        assert!(
            text.starts_with("DEAD  ") && text.contains("exit code 3: oh no"),
            "{text}"
        );
        assert_eq!(home.status()["dead"], 1);
    });
}

#[test]
fn dead_keys_can_be_revived_and_dropped() {
    on_each_store(|home| {
        make_dead(home, "a");
        make_dead(home, "b");
        let verb = |args: &[&str]| home.requeue().arg("dead").args(args).ran();
        let ran = verb(&["revive", "a", "other"]).expect(1);
        assert_eq!(ran.err, "requeue: revived 1 key; 1 key was not dead\n");
        assert_eq!(home.run(&["echo"]).ran().expect(0).out, "a\n", "and none from stdin");
        assert_eq!(verb(&["drop", "--all"]).expect(0).err, "requeue: dropped 1 key\n");
        assert_eq!(home.dead().len(), 0);
        verb(&["drop"]).expect(2);
        verb(&["revive", "--all", "k"]).expect(2);
    });
}

#[test]
fn a_dead_key_that_is_added_has_a_new_chance() {
    on_each_store(|home| {
        make_dead(home, "k");
        let ran = home.requeue().args(["add", "k", "new"]).ran().expect(0);
        assert_eq!(ran.err, "requeue: 2 keys: 1 added, 1 revived from the dead\n");
        assert_eq!(home.run(&["echo"]).ran().expect(0).sorted(), ["k", "new"]);
    });
}

#[test]
fn failing_keys_are_named_with_their_error_and_can_be_forgiven() {
    on_each_store(|home| {
        make_dead(home, "d");
        let mut live = home.run(&["--backoff", "1h"]).args(FAILS).start();
        live.say("k");
        live.end_input();
        live.wait_for_status("delayed 1 (next ");
        live.signal("INT");
        live.ended().expect(130);
        let status = home.status();
        let failing = &status["failing_keys"][0];
        assert_eq!((&failing["key"], &failing["retries"]), (&"k".into(), &1.into()));
        assert_eq!(failing["error"], "exit code 3: oh no");
        assert!(failing["retry_in_ms"].as_u64().unwrap() > 3_000_000, "{status}");
        let text = home.requeue().arg("status").ran().expect(0).out;
        assert!(
            text.contains("FAILING") && text.contains("exit code 3: oh no"),
            "{text}"
        );
        let ran = home.requeue().args(["forget", "k"]).ran().expect(0);
        assert_eq!(ran.err, "requeue: forgot the failures of 1 key\n");
        let ran = home.requeue().args(["forget", "k", "k", "d", "other"]).ran().expect(1);
        let told = "forgot the failures of 1 key; 2 keys were not there, or dead\n";
        assert!(ran.err.ends_with(told), "{}", ran.err);
        assert_eq!(home.status()["failing"], 0);
    });
}

#[test]
fn a_paused_queue_hands_out_nothing() {
    on_each_store(|home| {
        home.add(&["k"]);
        let ran = home.requeue().arg("pause").ran().expect(0);
        assert!(ran.err.starts_with("requeue: paused "), "{}", ran.err);
        assert_eq!(home.status()["paused"], true);
        let mut live = home.run(&["--worker", "echo"]).start();
        live.err_line("is paused: nothing starts until requeue resume");
        live.wait_for_status("ready 1  running 0/");
        live.signal("TERM");
        assert_eq!(live.ended().expect(143).out, "");
        home.requeue().arg("resume").ran().expect(0);
        assert_eq!(home.run(&["echo"]).ran().expect(0).out, "k\n");
    });
}

#[test]
fn a_run_waits_for_a_paused_queue() {
    on_each_server(|home| {
        home.make();
        home.requeue().arg("pause").ran().expect(0);
        let mut live = home.run(&["echo"]).start();
        live.say("k");
        live.end_input();
        live.err_line("is paused");
        home.requeue().arg("resume").ran().expect(0);
        assert_eq!(live.ended().expect(0).out, "k\n");
    });
}

#[test]
fn no_more_keys_are_read_than_there_is_room_for() {
    on_each_store(|home| {
        home.dir.fifo("go");
        let script = "[ {} != 0 ] || cat go > /dev/null; echo {}";
        let flags = ["-j1", "--max-queued", "3", "--shell", script];
        let mut live = home.run(&flags).start();
        live.say("0");
        live.wait_for_status("running 1/1");
        (1..20).for_each(|key| live.say(&key.to_string()));
        live.end_input();
        live.wait_for_status("ready 3  running 1/1");
        home.dir.release("go");
        assert_eq!(live.ended().expect(0).sorted().len(), 20);
    });
}

#[test]
fn the_queue_of_a_store_is_measured() {
    use std::io::{Read, Write};
    on_each_store(|home| {
        let mut live = home.run(&["--metrics", "0", "echo"]).start();
        let said = live.err_line("metrics at http://");
        live.say("a");
        live.wait_for_status("done 1");
        let address = said.split("http://").nth(1).unwrap().trim_end_matches("/metrics");
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
        live.ended().expect(0);
    });
}

#[test]
fn the_place_may_be_typed_instead() {
    let dir = Dir::new();
    dir.requeue().args(["add", "--store", "./q", "k"]).ran().expect(0);
    let ran = dir.run(["--store", "./q", "--worker", "--fail-fast"]);
    let ran = ran.args(["--max-retries=0", "--shell", "echo {}; false"]).ran().expect(1);
    assert_eq!(ran.out, "k\n");
}
