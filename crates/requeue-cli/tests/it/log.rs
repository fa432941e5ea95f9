//! The log, resuming from it, and metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Dir, Live, is_alive, numbers, signal, with_timeout};

#[test]
fn log_has_every_event_of_a_key_in_order() {
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
fn log_has_signals_and_keys_that_are_not_utf8() {
    let dir = Dir::new();
    let flags = ["--log", "log", "--max-retries", "0", "--shell", "kill -9 $$ # "];
    dir.run(flags).stdin(b"\xff\"\n".to_vec()).ran().expect(1);
    let end = &dir.events("log", "finished")[0];
    assert_eq!((&end["code"], &end["signal"]), (&137.into(), &9.into()));
    assert_eq!(end["key_hex"], "ff22");
}

#[test]
fn unwritable_log_is_reported_with_its_flag() {
    let ran = Dir::new().run(["--log", "no/where", "true"]).ran().expect(2);
    assert!(ran.err.contains("--log no/where"), "{}", ran.err);
}

#[test]
fn full_disk_ends_the_run() {
    let dir = Dir::new();
    let keys = numbers(1000);
    let ran = dir.run(["--log", "/dev/full", "true"]).stdin(keys).ran().expect(2);
    assert!(ran.err.contains("cannot write --log"), "{}", ran.err);
    assert_eq!(ran.err.matches("--log").count(), 1, "{}", ran.err);
}

#[test]
fn resume_skips_finished_keys() {
    let dir = Dir::new();
    let flags = ["--log", "log", "--resume", "log", "--max-retries", "0", "--shell"];
    let script = "echo {}; [ {} != bad ] || [ -e fixed ]";
    // The log does not exist yet.
    let ran = dir.run(flags).arg(script).stdin("good\nbad\n").ran().expect(1);
    assert_eq!(ran.sorted(), ["bad", "good"]);
    dir.write("fixed", "");
    let ran = dir.run(flags).arg(script).stdin("good\nbad\nnew\n").ran().expect(0);
    assert_eq!(ran.sorted(), ["bad", "new"]);
    assert!(ran.err.contains("skipped 1 key finished earlier"), "{}", ran.err);
    let ran = dir.run(flags).arg(script).stdin("good\nbad\nnew\n").ran().expect(0);
    assert_eq!(ran.out, "");
}

#[test]
fn log_to_resume_from_must_exist() {
    let ran = Dir::new().run(["--resume", "nowhere", "true"]).ran().expect(2);
    assert!(ran.err.contains("--resume nowhere"), "{}", ran.err);
    let dir = Dir::new();
    dir.write("keys", "a\nb\n");
    let ran = dir.run(["--resume", "keys", "true"]).ran().expect(2);
    assert!(ran.err.contains("--resume keys was not written by --log"), "{}", ran.err);
}

#[test]
fn killed_run_can_be_resumed() {
    let dir = Dir::new();
    dir.pipes();
    let script = "if [ {} = b ] && [ ! -e second ]; then echo $$ > pid; cat go > /dev/null; fi; echo {}";
    let flags = ["-j1", "--log", "log", "--resume", "log", "--shell", script];
    let mut live = dir.run(flags).start();
    for key in ["a", "b", "c"] {
        live.send(key);
    }
    assert_eq!(live.out_line(), "a");
    dir.receive("pid");
    live.wait_for_status("running 1/1  delayed 0  done 1");
    live.kill_with_guard();
    assert_eq!(live.wait().code, None, "killed by the signal");
    let pid = dir.events("log", "started").last().unwrap()["pid"].to_string();
    // A crash can cut off a line.
    dir.write("log", dir.read("log") + "{\"event\":\"fini");
    assert!(is_alive(&pid), "the command survives the death of requeue");
    dir.write("second", "");
    let ran = dir.run(flags).stdin("a\nb\nc\n").ran().expect(0);
    assert_eq!(ran.sorted(), ["b", "c"]);
    assert!(ran.err.contains(&format!("process {pid} may still run b")), "{}", ran.err);
    signal("KILL", &format!("-{pid}"));
}

#[test]
fn metrics_are_served_during_the_run() {
    let dir = Dir::new();
    let mut live = dir.run(["--metrics", "0", "--", "echo"]).start();
    let message = live.err_line("metrics at http://");
    let address =
        message.split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    live.send("a");
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
    live.wait().expect(0);
}

/// Starts a run with metrics. Returns it and the address of its server.
fn with_metrics(dir: &Dir, files: u32) -> (Live, String) {
    let requeue = env!("CARGO_BIN_EXE_requeue");
    let script = format!("ulimit -n {files}; exec {requeue} run --metrics 0 -- echo");
    let mut live = dir.shell(&script).start();
    let message = live.err_line("metrics at http://");
    let address = message.split("http://").nth(1).unwrap();
    (live, address.trim_end_matches("/metrics").to_owned())
}

fn get_metrics(address: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    client.read_to_string(&mut page).unwrap();
    page
}

/// One client that sent a byte every two seconds once blocked all others for hours.
#[test]
fn slow_client_does_not_block_metrics() {
    let dir = Dir::new();
    let (live, address) = with_metrics(&dir, 256);
    let mut slow = TcpStream::connect(&address).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let sender = std::thread::spawn(move || {
        let pace = std::time::Duration::from_millis(500);
        // Ends when the server closes the connection, or with the test.
        while slow.write_all(b"G").is_ok() && stopped.recv_timeout(pace).is_err() {}
    });
    let page =
        with_timeout("metrics beside a slow client", move || get_metrics(&address));
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    stop.send(()).unwrap_or_default();
    sender.join().unwrap();
    live.wait().expect(0);
}

/// Without free file descriptors, the server once called accept in a busy loop.
#[test]
fn metrics_recover_from_a_lack_of_file_descriptors() {
    let dir = Dir::new();
    let (live, address) = with_metrics(&dir, 40);
    let clients: Vec<_> =
        (0..60).map(|_| TcpStream::connect(&address).unwrap()).collect();
    drop(clients);
    let page = with_timeout("metrics after many clients", move || get_metrics(&address));
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    live.wait().expect(0);
}

#[test]
fn address_in_use_is_reported_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Dir::new().run(["--metrics", &address, "true"]).ran().expect(2);
    assert!(ran.err.contains(&format!("--metrics {address}")), "{}", ran.err);
}
