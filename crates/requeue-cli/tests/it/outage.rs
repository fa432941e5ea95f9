//! Servers that are unreachable, at start-up or later.

use std::net::TcpListener;

use crate::harness::{Dir, Live};
use crate::own_redis::OwnRedis;
use crate::proxy::Proxy;
use crate::test_store::{TestStore, VERBS, on_each_server, server};

/// A worker started at boot once failed because its server was not ready.
#[test]
fn workers_and_adds_wait_for_a_starting_server() {
    on_each_server(|store| {
        for (verb, done) in
            [(&["run", "--worker", "echo"][..], "working on "), (&["add", "k"], "1 key")]
        {
            let (proxy, early) = store.through_proxy();
            proxy.cut();
            let mut live = early.args(verb).start();
            live.err_line("cannot open the store, retrying for 10.0s: ");
            proxy.restore();
            live.err_line(done);
            if verb[0] == "run" {
                live.signal("TERM");
            }
            let ran = live.wait().expect(0);
            assert!(!ran.err.contains("retrying"), "{}", ran.err);
        }
    });
}

/// The same line was once repeated.
#[test]
fn watch_reports_start_and_end_of_an_outage_once() {
    on_each_server(|store| {
        store.create();
        let (proxy, away) = store.through_proxy();
        let watch = ["watch", "--interval", "100ms", "--json"];
        let mut live = away.args(watch).start();
        live.out_line();
        proxy.cut();
        live.err_line("store unreachable, retrying");
        proxy.until_refused(3);
        proxy.restore();
        let next = live.err_line("");
        assert!(next.contains("store reachable again"), "{next}");
        live.signal_now("INT");
        live.wait().expect(0);
    });
}

/// Signals were once caught before the store was open, and handled only afterwards.
#[test]
fn signal_ends_a_run_that_is_opening_its_store() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for scheme in ["redis", "postgres"] {
        let url = format!("{scheme}://me@{}/0", silent.local_addr().unwrap());
        let live = Dir::new().run(["--store", &url, "true"]).start();
        let client = silent.accept().unwrap();
        live.signal_now("TERM");
        assert_eq!(live.wait().code, None, "killed by the signal");
        drop(client);
    }
}

/// Starts a worker, and cuts its connection while it runs a key. Its command has finished.
fn cut_off_while_running(store: &TestStore) -> (Proxy, Live) {
    let (proxy, away) = store.through_proxy();
    store.dir.pipes();
    store.add(&["k"]);
    let script = "echo $$ > pid; cat go > /dev/null; echo {}";
    let mut live = away.args(["run", "--worker", "--shell", script]).start();
    store.dir.receive("pid");
    proxy.cut();
    live.err_line("store unreachable, retrying; running commands continue");
    store.dir.release("go");
    assert_eq!(live.out_line(), "k", "the running command continues");
    (proxy, live)
}

#[test]
fn worker_reports_start_and_end_of_an_outage_once() {
    on_each_server(|store| {
        let (proxy, mut live) = cut_off_while_running(store);
        proxy.restore();
        live.err_line("store works again after");
        live.wait_for_status("ready 0  running 0/");
        store.run(&["echo", "again"]).ran().expect(0);
        live.signal("TERM");
        let ran = live.wait().expect(0);
        assert!(
            ran.err.contains("1 ok, 0 failed; 1 run,")
                && !ran.err.contains("unreachable"),
            "{}",
            ran.err
        );
    });
}

#[test]
fn second_signal_ends_a_worker_during_an_outage() {
    on_each_server(|store| {
        let (proxy, away) = store.through_proxy();
        let dir = &store.dir;
        dir.fifo("pid");
        store.add(&["k"]);
        let script = "echo $$ > pid; exec sleep 1000 #";
        let mut live = away.args(["run", "--worker", "--shell", script]).start();
        dir.receive("pid");
        proxy.cut();
        live.err_line("store unreachable, retrying; running commands continue");
        live.signal("TERM");
        live.err_line("waiting for 1 running");
        live.signal("TERM");
        live.wait().expect(143);
    });
}

/// If no command was running, nothing was once printed after Ctrl-C.
#[test]
fn first_signal_during_an_outage_explains_the_wait() {
    on_each_server(|store| {
        let (_proxy, mut live) = cut_off_while_running(store);
        live.signal("TERM");
        live.err_line(
            "waiting for the store to answer; press Ctrl-C again to exit without it",
        );
        live.signal("TERM");
        let ran = live.wait().expect(143);
        let left = "at least 1 key left (no answer from the store)";
        assert!(ran.err.contains(left), "{}", ran.err);
    });
}

#[test]
fn add_reports_acknowledged_keys_after_an_outage() {
    on_each_server(|store| {
        store.create();
        let (proxy, away) = store.through_proxy();
        let mut live = away.arg("add").start();
        live.send("a");
        while store.status()["ready"] != 1 {}
        proxy.cut();
        live.send("b");
        let ran = live.wait().expect(2);
        let message = "store failed after adding 1 key: ";
        assert!(ran.err.contains(message), "{}", ran.err);
        assert_eq!(store.status()["ready"], 1);
    });
}

/// `requeue add` waits for the server, see below.
#[test]
fn every_verb_names_the_unreachable_server() {
    for verb in VERBS.into_iter().filter(|verb| verb[0] != "add") {
        for url in [
            "redis://me:secret@127.0.0.1:1",
            "rediss://me:secret@127.0.0.1:1",
            "postgres://me:secret@127.0.0.1:1/db",
        ] {
            let ran = Dir::new().requeue().args(verb).env("REQUEUE_STORE", url).ran();
            let ran = ran.expect(2);
            assert!(
                ran.err.starts_with("requeue: cannot open the store: "),
                "{}",
                ran.err
            );
            assert!(ran.err.contains("127.0.0.1:1"), "{}", ran.err);
            assert!(!ran.err.contains("secret"), "{}", ran.err);
        }
    }
}

/// A server that has no memory, is a replica or has a new password once ended the worker, or
/// was reported each second.
#[test]
fn worker_survives_what_servers_do_and_says_why_once() {
    if server("REQUEUE_REDIS_URL").is_none() {
        return;
    }
    let dir = Dir::new();
    let mut redis = OwnRedis::start(&dir);
    let url = redis.url();
    let mut live = dir.run(["--worker", "--store", &url, "echo"]).start();
    live.err_line("working on ");
    let add = |key: &str| {
        dir.requeue().args(["add", "--store", &url, key]).ran().expect(0);
    };
    // An idle worker writes nothing, so a lack of memory does not show.
    redis.send("CONFIG SET maxmemory 1");
    assert!(redis.send("SET x y").contains("OOM"));
    redis.send("CONFIG SET maxmemory 0");
    add("after OOM");
    assert_eq!(live.out_line(), "after OOM");
    redis.send("REPLICAOF 127.0.0.1 1");
    expect_note(&mut live, "store is read-only, retrying");
    redis.send("REPLICAOF NO ONE");
    expect_note(&mut live, "store works again after");
    add("after read-only");
    assert_eq!(live.out_line(), "after read-only");
    redis.require_password("secret");
    // Its connections are closed first.
    live.err_line("store refuses the user or password, retrying");
    redis.require_none();
    expect_note(&mut live, "store works again after");
    add("after a password");
    assert_eq!(live.out_line(), "after a password");
    live.signal("TERM");
    live.wait().expect(0);
}

/// Waits for the next note about the store. No other one may come first.
fn expect_note(live: &mut Live, part: &str) {
    let note = live.err_line("requeue: store ");
    assert!(note.contains(part), "{part}: {note}");
}
