//! Several processes on one store, and killed processes.

use crate::harness::{Dir, WAITS, is_alive, lines, wait_for_exit};
use crate::store::make_dead;
use crate::test_store::{TestStore, embedded, on_each_server};

/// Short, because tests wait for leases to expire, but long enough for a busy machine: with
/// half a second, a healthy worker lost its lease.
const LEASE: &str = "3s";

fn with_pipes(store: &TestStore) -> &Dir {
    store.dir.pipes();
    &store.dir
}

/// Such a run once exited with code 0 although its key never ran.
#[test]
fn key_that_died_by_expired_leases_has_failed_for_good() {
    on_each_server(|store| {
        let dir = with_pipes(store);
        make_dead(store, "of another");
        let flags = ["--lease", LEASE, "--max-deliveries", "1", "-j1"];
        let script = "[ {} = slow ] && { echo $$ > pid; cat go > /dev/null; }";
        let mut live =
            store.run(&flags).args(["--log", "log", "--shell", script]).start();
        live.send("slow");
        dir.receive("pid");
        live.send("z");
        while store.status()["ready"] != 1 {}
        // Another worker dies with the key.
        store.run(&flags).args(["--worker", "--shell", "kill -9 $PPID #"]).ran();
        dir.release("go");
        let ran = live.wait().expect(1);
        assert!(ran.err.contains("2 keys: 1 ok, 1 failed; 1 run,"), "{}", ran.err);
        assert!(
            ran.err.contains("  failed: z: ") && ran.err.contains("lease"),
            "{}",
            ran.err
        );
        let died = store.dir.events("log", "died");
        assert_eq!((died.len(), &died[0]["key"]), (1, &"z".into()));
    });
}

#[test]
fn workers_share_keys_and_never_run_one_twice_at_once() {
    on_each_server(|store| {
        let script = "mkdir lock.{} || echo overlap; echo {}; rmdir lock.{}";
        let worker = || store.run(&["--worker", "-j3", "--shell", script]).start();
        let [mut one, mut two] = [worker(), worker()];
        for worker in [&mut one, &mut two] {
            worker.err_line("working on ");
        }
        let keys = lines((0..60).map(|key| format!("k{key}")));
        let ran = store.run(&["-j1", "--shell", script]).stdin(keys).ran().expect(0);
        let mut all = ran.out;
        for worker in [one, two] {
            worker.signal("TERM");
            all += &worker.wait().expect(0).out;
        }
        let mut keys: Vec<_> = all.lines().collect();
        keys.sort_unstable();
        assert_eq!(keys.len(), 60, "each key ran once: {keys:?}");
        keys.dedup();
        assert_eq!(keys.len(), 60);
    });
}

#[test]
fn status_lists_workers_with_their_keys() {
    on_each_server(|store| {
        let dir = with_pipes(store);
        let live = store.run(&["--worker", "--shell", WAITS]).start();
        store.add(&["k"]);
        dir.receive("pid");
        let status = store.status();
        let worker = &status["workers"][0];
        assert_eq!((&worker["keys"], &status["processing"]), (&1.into(), &1.into()));
        assert!(worker["name"].is_string() && worker["seen_ms_ago"].is_u64(), "{status}");
        dir.release("go");
        live.signal("TERM");
        live.wait().expect(0);
    });
}

#[test]
fn keys_of_a_killed_worker_go_to_another() {
    on_each_server(|store| {
        let dir = with_pipes(store);
        store.add(&["k"]);
        let flags = ["--worker", "--lease", LEASE, "--shell", WAITS];
        let first = store.run(&flags).start();
        let orphan = dir.receive("pid");
        first.signal("KILL");
        // It once kept running beside the second run of its key.
        wait_for_exit(orphan.trim());
        dir.write("second", "");
        let mut other = store.run(&flags).start();
        assert_eq!(other.out_line(), "k");
        other.signal("TERM");
        other.wait().expect(0);
        first.wait();
    });
}

#[test]
fn command_is_stopped_if_its_lease_is_lost() {
    on_each_server(|store| {
        let dir = with_pipes(store);
        store.add(&["k"]);
        let flags = ["--worker", "--lease", LEASE, "--log", "log", "--shell", WAITS];
        let mut first = store.run(&flags).start();
        let pid = dir.receive("pid");
        first.signal("STOP");
        dir.write("second", "");
        let mut other = store.run(&flags[..3]).args(&flags[5..]).start();
        assert_eq!(other.out_line(), "k");
        first.signal("CONT");
        first.err_line("lease on k expired");
        wait_for_exit(pid.trim());
        // The store may not know yet that the other worker has finished.
        while store.status()["processing"] != 0 {}
        for worker in [first, other] {
            worker.signal("TERM");
            let ran = worker.wait().expect(0);
            assert!(ran.err.contains(" ok, 0 failed; "), "{}", ran.err);
            // The loss was once reported a second time, as a late finish.
            assert!(!ran.err.contains("run again"), "{}", ran.err);
        }
        assert_eq!(dir.events("log", "lost").len(), 1);
        assert_eq!(dir.events("log", "finished").len(), 0);
    });
}

#[test]
fn watch_repeats_until_a_signal() {
    on_each_server(|store| {
        store.create();
        let watch = ["watch", "--interval", "100ms", "--json"];
        let mut live = store.requeue().args(watch).start();
        assert!(live.out_line().contains("\"ready\":0"));
        store.add(&["k"]);
        while !live.out_line().contains("\"ready\":1") {}
        live.signal_now("INT");
        live.wait().expect(0);
    });
}

#[test]
fn embedded_queue_waits_for_orphans_of_a_killed_run() {
    let store = embedded();
    let dir = with_pipes(&store);
    let script = "mkdir lock.{} || echo overlap; \
                  if [ {} = b ] && [ ! -e second ]; then echo $$ > pid; cat go; fi; \
                  rmdir lock.{}; echo {}";
    let mut live = store.run(&["-j1", "--shell", script]).start();
    for key in ["a", "b", "c"] {
        live.send(key);
    }
    assert_eq!(live.out_line(), "a");
    let pid = dir.receive("pid").trim().to_owned();
    live.kill_with_guard();
    dir.write("second", "");
    let mut live = store.run(&["-j1", "--shell", script]).start();
    live.end_input();
    let note = format!("process {pid} from an earlier run still runs b");
    live.err_line(&note);
    assert_eq!(live.out_line(), "c", "other keys run");
    assert!(is_alive(&pid));
    live.wait_for_status("ready 0  running 0/1");
    dir.release("go");
    assert_eq!(live.out_line(), "b", "the key starts after the orphan exits");
    let ran = live.wait().expect(0);
    assert!(!ran.out.contains("overlap"), "{}", ran.out);
    assert!(!dir.path("queue.db.running").exists());
}

#[test]
fn kill_loses_no_acknowledged_key() {
    let store = embedded();
    let keys = lines((0..500).map(|key| key.to_string()));
    let mut live = store.run(&["-j4", "--shell", "echo {} >> ran"]).start();
    live.send_text(&keys);
    live.wait_for_status("done 1");
    live.end_input();
    live.signal("KILL");
    live.wait();
    // Keys that were not acknowledged are added again.
    store.run(&["-j4", "--shell", "echo {} >> ran"]).stdin(keys).ran().expect(0);
    let ran = store.dir.read("ran");
    let mut ran: Vec<u32> = ran.lines().map(|key| key.parse().unwrap()).collect();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran, (0..500).collect::<Vec<_>>());
}
