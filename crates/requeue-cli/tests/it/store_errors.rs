//! Stores that cannot be used, and flags that do not fit them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::harness::Dir;
use crate::test_store::{
    TestStore, VERBS, embedded, on_each_server, on_each_store, queue_name, server,
};

#[test]
fn unknown_scheme_is_rejected_with_the_known_ones() {
    for url in ["mysql://me:secret@host/db", "http://x", "://"] {
        let ran = Dir::new().requeue().args(["status", "--store", url]).ran().expect(2);
        assert!(ran.err.contains("unknown scheme"), "{}", ran.err);
        for scheme in ["redis://", "postgres://", "postgresql://"] {
            assert!(ran.err.contains(scheme), "{}", ran.err);
        }
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
    let ran = Dir::new().requeue().args(["status", "--store", ""]).ran().expect(2);
    assert!(ran.err.contains("--store is empty"), "{}", ran.err);
}

#[test]
fn verbs_require_a_store() {
    for verb in &VERBS[1..] {
        let ran = Dir::new().requeue().args(*verb).ran().expect(2);
        assert!(ran.err.contains("--store"), "{verb:?}: {}", ran.err);
    }
    let ran = Dir::new().run(["--worker", "true"]).ran().expect(2);
    assert!(ran.err.contains("--worker needs --store"), "{}", ran.err);
}

#[test]
fn second_process_on_an_embedded_store_is_rejected() {
    let store = embedded();
    let mut live = store.run(&["--worker", "echo"]).start();
    live.err_line("working on ");
    let ran = store.requeue().arg("status").ran().expect(2);
    assert!(ran.err.starts_with("requeue: cannot open the store: "), "{}", ran.err);
    assert!(ran.err.contains("queue.db"), "{}", ran.err);
    live.signal("TERM");
    live.wait().expect(0);
    store.requeue().arg("status").ran().expect(0);
}

fn is_missing(error: &str) -> bool {
    error.contains("does not exist") || error.contains("has no schema")
}

/// A mistyped name once created an empty queue, on Redis with a fixed number of partitions.
#[test]
fn only_run_and_add_create_a_queue() {
    on_each_store(|store| {
        // PostgreSQL migrates all queues of a schema together.
        for verb in VERBS[2..].iter().filter(|verb| verb[0] != "migrate") {
            let ran = store.requeue().args(*verb).ran().expect(2);
            assert!(is_missing(&ran.err), "{verb:?}: {}", ran.err);
        }
        assert!(!store.dir.path("queue.db").exists());
        store.add(&["k"]);
        assert_eq!(store.status()["ready"], 1);
    });
}

/// In a separate database, which has no tables yet.
#[test]
fn only_run_and_add_create_tables() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let name = queue_name().replace('-', "_");
    query(&url, &format!("create database {name}"));
    let own = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
    let ran = TestStore::on(&own, None).requeue().arg("pause").ran().expect(2);
    assert!(is_missing(&ran.err) && ran.err.contains("the database at "), "{}", ran.err);
    query(&own, "create schema requeue");
    query(&url, &format!("drop database {name} with (force)"));
}

#[test]
fn file_is_not_a_store() {
    let store = embedded();
    store.dir.write("queue.db", "a file");
    let ran = store.requeue().arg("status").ran().expect(2);
    assert!(ran.err.contains("queue.db"), "{}", ran.err);
    assert_eq!(store.dir.read("queue.db"), "a file");
}

#[test]
fn directory_has_one_queue_and_no_partitions() {
    for (flag, value) in [("--queue", "mail"), ("--partitions", "4")] {
        let args = ["status", "--store", "./q", flag, value];
        let ran = Dir::new().requeue().args(args).ran().expect(2);
        assert!(ran.err.contains(flag) && ran.err.contains("./q"), "{}", ran.err);
    }
    let args = ["status", "--store", "postgres://h/d", "--partitions", "4"];
    let ran = Dir::new().requeue().args(args).ran().expect(2);
    assert!(ran.err.contains("--partitions"), "{}", ran.err);
}

#[test]
fn different_number_of_partitions_is_rejected() {
    let Some(url) = server("REQUEUE_REDIS_URL") else { return };
    let name = format!("parts-{}", std::process::id());
    let dir = Dir::new();
    let verb = |partitions: &str, verb: &[&str]| {
        let command = dir.requeue().env("REQUEUE_STORE", &url).args(verb);
        command.args(["--queue", &name, "--partitions", partitions]).ran()
    };
    verb("2", &["add", "k"]).expect(0);
    let ran = verb("1025", &["add", "k"]).expect(2);
    assert!(ran.err.contains("1024"), "{}", ran.err);
    let ran = verb("3", &["status"]).expect(2);
    assert!(ran.err.contains('2') && ran.err.contains('3'), "{}", ran.err);
    assert!(ran.err.contains("partition"), "{}", ran.err);
    let status = verb("2", &["status", "--json"]).expect(0).out;
    assert!(status.contains("\"ready\":1"), "{status}");
    let without =
        dir.requeue().env("REQUEUE_STORE", &url).args(["status", "--queue", &name]);
    without.ran().expect(0);
}

/// Checks that a queue changed by a later version is refused and left unchanged.
fn is_rejected_while_later(store: &TestStore, raise: impl Fn(i32)) {
    store.requeue().args(["add", "k"]).ran().expect(0);
    raise(1000);
    for verb in [&["status"] as &[&str], &["add", "l"], &["run", "--worker", "true"]] {
        let ran = store.requeue().args(verb).ran().expect(2);
        assert!(ran.err.starts_with("requeue: cannot open the store: "), "{}", ran.err);
        assert!(ran.err.contains("version 100"), "{}", ran.err);
    }
    raise(-1000);
    let status = store.requeue().args(["status", "--json"]).ran().expect(0).out;
    assert!(status.contains("\"ready\":1"), "{status}");
}

#[test]
fn later_version_on_redis_is_rejected() {
    let Some(url) = server("REQUEUE_REDIS_URL") else { return };
    let queue = queue_name();
    is_rejected_while_later(&TestStore::on(&url, Some(&queue)), |by| {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let mut redis = TcpStream::connect(address).unwrap();
        write!(redis, "HINCRBY rq5:{{{queue}:0}}:m version {by}\r\n").unwrap();
        let mut answer = String::new();
        BufReader::new(redis).read_line(&mut answer).unwrap();
        assert!(answer.starts_with(':'), "{answer}");
    });
}

/// In a separate database, because all queues share the version.
#[test]
fn later_version_on_postgres_is_rejected() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let name = queue_name().replace('-', "_");
    query(&url, &format!("create database {name}"));
    let own = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
    is_rejected_while_later(&TestStore::on(&own, None), |by| {
        query(&own, &format!("update requeue.migration set version = version + {by}"));
    });
    query(&url, &format!("drop database {name} with (force)"));
}

fn query(url: &str, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(statement).await.unwrap();
    });
}

#[test]
fn too_long_key_is_rejected_and_others_are_added() {
    on_each_store(|store| {
        let long = "x".repeat(2000);
        let keys = format!("a\n{long}\nb\n");
        let ran = store.requeue().arg("add").stdin(keys).ran().expect(2);
        let is_rejected = |err: &str| {
            let line = err.lines().find(|line| line.contains("rejected line: "));
            line.is_some_and(|line| line.contains("2000 bytes") && line.contains("1024"))
        };
        assert!(is_rejected(&ran.err), "{}", ran.err);
        assert!(ran.err.contains("2 keys: 2 added"), "{}", ran.err);
        let other = format!("c\n{long}\n");
        let ran = store.run(&["echo"]).stdin(other.clone()).ran().expect(2);
        assert_eq!(ran.sorted(), ["a", "b", "c"]);
        assert!(is_rejected(&ran.err), "{}", ran.err);
        let fails = ["--max-retries=0", "--progress=none", "false"];
        store.run(&fails).stdin(other).ran().expect(1);
        store.requeue().args(["forget", &long]).ran().expect(2);
    });
}

#[test]
fn unsupported_flags_are_rejected_with_the_reason() {
    for (flag, why) in [
        ("--fair-by=/", "has no groups"),
        ("--debounce=1s", "the earliest deadline"),
        ("--jitter=full", "without jitter"),
        ("--resume=log", "keeps the unfinished keys"),
    ] {
        let ran = embedded().run(&[flag, "true"]).ran().expect(2);
        let name = flag.split('=').next().unwrap();
        let message = format!("{name} cannot be used with --store");
        assert!(ran.err.contains(&message) && ran.err.contains(why), "{}", ran.err);
    }
    let ran = embedded().run(&["--worker", "true", ":::", "k"]).ran().expect(2);
    assert!(ran.err.contains("--worker reads no input"), "{}", ran.err);
    for value in ["--lease=1ms", "--lease=x"] {
        let ran = embedded().run(&[value, "true"]).ran().expect(2);
        assert!(ran.err.contains("at least 100ms"), "{}", ran.err);
    }
}

/// Starts a server that gives the same answer to every request: `answer`. Returns its address.
fn fake_server(answer: &'static [u8]) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut answers = || {
                let mut request = [0; 4096];
                let length = client.read(&mut request).unwrap_or(0);
                // Each command of Redis starts with an asterisk.
                let lines = request[..length].split(|byte| *byte == b'\n');
                let commands = lines.filter(|line| line.first() == Some(&b'*')).count();
                let answers = answer.repeat(commands.max(1));
                length > 0 && !answer.is_empty() && client.write_all(&answers).is_ok()
            };
            while answers() {}
        }
    });
    address
}

/// The messages once were `Parse error at 1` and `received corrupt message`.
#[test]
fn wrong_server_is_explained() {
    let page = fake_server(b"HTTP/1.1 400 Bad Request\r\n\r\n<!DOCTYPE HTML>\n");
    let silent = fake_server(b"");
    for (url, hint) in [
        (format!("redis://{page}"), "check the host and the port"),
        (format!("rediss://{page}"), "write redis://"),
        (format!("redis://{silent}"), "write rediss://"),
        (format!("rediss://{silent}"), "write redis://"),
        (format!("postgres://me@{page}/db"), "it may not be PostgreSQL"),
    ] {
        let ran = Dir::new().requeue().args(["status", "--store", &url]).ran().expect(2);
        assert!(ran.err.contains(hint), "{url}: {}", ran.err);
    }
}

#[test]
fn missing_password_is_explained() {
    let refusing = fake_server(b"-NOAUTH Authentication required.\r\n");
    let url = format!("redis://{refusing}");
    let ran = Dir::new().requeue().args(["status", "--store", &url]).ran().expect(2);
    assert!(ran.err.contains("redis://:PASSWORD@HOST"), "{}", ran.err);
}

#[test]
fn store_from_the_environment_is_named() {
    on_each_store(|store| {
        for verb in [&["add", "k"][..], &["run", "true"]] {
            let ran = store.requeue().args(verb).ran().expect(0);
            assert!(ran.err.contains("using ") && ran.err.contains(" (REQUEUE_STORE)"));
        }
    });
    let dir = Dir::new();
    let ran = dir.requeue().args(["add", "--store", "./q", "k"]).ran().expect(0);
    assert!(!ran.err.contains("REQUEUE_STORE"), "{}", ran.err);
}

/// A mistyped name once created a queue silently.
#[test]
fn new_queue_on_a_server_is_reported_once() {
    on_each_server(|store| {
        for created in [true, false] {
            let ran = store.requeue().args(["add", "k"]).ran().expect(0);
            assert_eq!(ran.err.contains("created the new queue"), created, "{}", ran.err);
        }
    });
}
