//! What is written down: the log, resuming from it, metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Dir, is_alive, numbers, signal};

#[test]
fn the_log_tells_all_that_happens_to_a_key() {
    let dir = Dir::new();
    let flags = ["--log", "log", "--backoff", "1ms", "--max-retries", "1", "--shell"];
    dir.run(flags).arg("echo why >&2; exit 5 #").stdin("k\n").ran().expect(1);
    let log = dir.log("log");
    let events: Vec<_> = log.iter().map(|line| line["event"].as_str().unwrap()).collect();
    let wanted = [
        "added", "started", "finished", "retried", "started", "finished", "gave_up",
        "drained",
    ];
    assert_eq!(events, wanted);
    assert!(log[..7].iter().all(|line| line["key"] == "k"), "{log:?}");
    assert!(
        log.windows(2).all(|pair| pair[0]["time"].as_f64() <= pair[1]["time"].as_f64())
    );
    assert!(log[1]["pid"].as_u64().unwrap() > 1);
    assert_eq!((&log[2]["code"], &log[2]["attempt"]), (&5.into(), &1.into()));
    assert!(log[2]["took_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(log[6]["stderr"], "why");
    assert_eq!(
        (&log[7]["runs"], &log[7]["failed"], &log[7]["left"]),
        (&2.into(), &1.into(), &0.into())
    );
}

#[test]
fn the_log_tells_of_signals_and_of_bytes_that_are_no_text() {
    let dir = Dir::new();
    let flags = ["--log", "log", "--max-retries", "0", "--shell", "kill -9 $$ # "];
    dir.run(flags).stdin(b"\xff\"\n".to_vec()).ran().expect(1);
    let end = &dir.events("log", "finished")[0];
    assert_eq!((&end["code"], &end["signal"]), (&137.into(), &9.into()));
    assert_eq!(end["key_hex"], "ff22");
}

#[test]
fn a_log_that_cannot_be_opened_is_named_with_its_flag() {
    let ran = Dir::new().run(["--log", "no/where", "true"]).ran().expect(2);
    assert!(ran.err.contains("--log no/where"), "{}", ran.err);
}

#[test]
fn a_full_disk_ends_the_run() {
    let dir = Dir::new();
    let keys = numbers(1000);
    let ran = dir.run(["--log", "/dev/full", "true"]).stdin(keys).ran().expect(2);
    assert!(ran.err.contains("cannot write the log of --log"), "{}", ran.err);
    assert_eq!(ran.err.matches("--log").count(), 1, "{}", ran.err);
}

#[test]
fn finished_keys_do_not_run_again() {
    let dir = Dir::new();
    let flags = ["--log", "log", "--resume", "log", "--max-retries", "0", "--shell"];
    let script = "echo {}; [ {} != bad ] || [ -e mended ]";
    // The first time there is no log yet.
    let ran = dir.run(flags).arg(script).stdin("good\nbad\n").ran().expect(1);
    assert_eq!(ran.sorted(), ["bad", "good"]);
    dir.write("mended", "");
    let ran = dir.run(flags).arg(script).stdin("good\nbad\nnew\n").ran().expect(0);
    assert_eq!(ran.sorted(), ["bad", "new"]);
    assert!(ran.err.contains("1 skipped as finished before"), "{}", ran.err);
    let ran = dir.run(flags).arg(script).stdin("good\nbad\nnew\n").ran().expect(0);
    assert_eq!(ran.out, "");
}

#[test]
fn a_log_to_resume_from_must_be_there() {
    let ran = Dir::new().run(["--resume", "nowhere", "true"]).ran().expect(2);
    assert!(ran.err.contains("--resume nowhere"), "{}", ran.err);
    let dir = Dir::new();
    dir.write("keys", "a\nb\n");
    let ran = dir.run(["--resume", "keys", "true"]).ran().expect(2);
    assert!(ran.err.contains("--resume keys is no log"), "{}", ran.err);
}

#[test]
fn a_run_that_was_killed_can_be_resumed() {
    let dir = Dir::new();
    dir.pipes();
    let script = "if [ {} = b ] && [ ! -e second ]; then echo $$ > pid; cat go > /dev/null; fi; echo {}";
    let flags = ["-j1", "--log", "log", "--resume", "log", "--shell", script];
    let mut live = dir.run(flags).start();
    for key in ["a", "b", "c"] {
        live.say(key);
    }
    assert_eq!(live.out_line(), "a");
    dir.hear("pid");
    live.wait_for_status("running 1/1  delayed 0  done 1");
    live.signal("KILL");
    assert_eq!(live.ended().code, None, "ended by a signal");
    let pid = dir.events("log", "started").last().unwrap()["pid"].to_string();
    // As if the disk had kept half of a line.
    dir.write("log", dir.read("log") + "{\"event\":\"fini");
    assert!(is_alive(&pid), "a command outlives a requeue that is killed");
    dir.write("second", "");
    let ran = dir.run(flags).stdin("a\nb\nc\n").ran().expect(0);
    assert_eq!(ran.sorted(), ["b", "c"]);
    assert!(ran.err.contains(&format!("as process {pid}")), "{}", ran.err);
    signal("KILL", &format!("-{pid}"));
}

#[test]
fn metrics_are_served_while_it_runs() {
    let dir = Dir::new();
    let mut live = dir.run(["--metrics", "0", "--", "echo"]).start();
    let said = live.err_line("metrics at http://");
    let address =
        said.split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    live.say("a");
    assert_eq!(live.out_line(), "a");
    live.wait_for_status("done 1");
    let get = |path: &str| {
        let mut client = TcpStream::connect(&address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let page = get("/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for line in [
        "workqueue_adds_total{name=\"run\"} 1\n",
        "requeue_runs_total{outcome=\"succeeded\"} 1\n",
        "requeue_merged_total 0\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
    assert!(get("/other").starts_with("HTTP/1.1 404 "));
    live.ended().expect(0);
}

#[test]
fn an_address_in_use_is_named_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Dir::new().run(["--metrics", &address, "true"]).ran().expect(2);
    assert!(ran.err.contains(&format!("--metrics {address}")), "{}", ran.err);
}
