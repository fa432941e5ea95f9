//! Several processes on a store, and what they leave behind.

use crate::harness::{Dir, WAITS, ends, is_alive, lines, signal};
use crate::store::make_dead;
use crate::stores::{Home, embedded, on_each_server};

/// Short, since tests wait for its end, but not so short that a worker on a machine under
/// load loses it: with half a second, one that was not stopped did.
const LEASE: &str = "3s";

fn with_pipes(home: &Home) -> &Dir {
    home.dir.pipes();
    &home.dir
}

/// It ended with 0 keys failed and the code 0, and the key had never run. A key that is
/// added after its lease ran out is revived, so the lease outlasts the start of a process.
#[test]
fn a_key_that_died_of_its_leases_has_failed_for_good() {
    on_each_server(|home| {
        let flags = ["--lease", LEASE, "--max-deliveries", "1", "--log", "log"];
        make_dead(home, "of another");
        home.run(&flags).args(["sh", "-c", "kill -9 $PPID", ":::", "z"]).ran();
        let ran = home.run(&flags).args(["echo", ":::", "z"]).ran().expect(1);
        assert_eq!(ran.out, "");
        assert!(ran.err.contains("0 runs in") && ran.err.contains("1 key failed"));
        let told = "  failed: z: its lease ran out 1 time in a row\n";
        assert!(ran.err.contains(told), "{}", ran.err);
        let died = home.dir.events("log", "died");
        assert_eq!((died.len(), &died[0]["key"]), (1, &"z".into()));
    });
}

#[test]
fn workers_share_the_keys_and_no_key_runs_twice_at_a_time() {
    on_each_server(|home| {
        let script = "mkdir lock.{} || echo overlap; echo {}; rmdir lock.{}";
        let worker = || home.run(&["--worker", "-j3", "--shell", script]).start();
        let [mut one, mut two] = [worker(), worker()];
        for worker in [&mut one, &mut two] {
            worker.err_line("working on ");
        }
        let keys = lines((0..60).map(|key| format!("k{key}")));
        let ran = home.run(&["-j1", "--shell", script]).stdin(keys).ran().expect(0);
        let mut all = ran.out;
        for worker in [one, two] {
            worker.signal("TERM");
            all += &worker.ended().expect(0).out;
        }
        let mut keys: Vec<_> = all.lines().collect();
        keys.sort_unstable();
        assert_eq!(keys.len(), 60, "each once: {keys:?}");
        keys.dedup();
        assert_eq!(keys.len(), 60);
    });
}

#[test]
fn workers_are_named_with_their_keys() {
    on_each_server(|home| {
        let dir = with_pipes(home);
        let live = home.run(&["--worker", "--shell", WAITS]).start();
        home.add(&["k"]);
        dir.hear("pid");
        let status = home.status();
        let worker = &status["workers"][0];
        assert_eq!((&worker["keys"], &status["processing"]), (&1.into(), &1.into()));
        assert!(worker["name"].is_string() && worker["seen_ms_ago"].is_u64(), "{status}");
        dir.release("go");
        live.signal("TERM");
        live.ended().expect(0);
    });
}

#[test]
fn keys_of_a_worker_that_was_killed_go_to_another() {
    on_each_server(|home| {
        let dir = with_pipes(home);
        home.add(&["k"]);
        let flags = ["--worker", "--lease", LEASE, "--shell", WAITS];
        let first = home.run(&flags).start();
        let orphan = dir.hear("pid");
        first.signal("KILL");
        dir.write("second", "");
        let mut other = home.run(&flags).start();
        assert_eq!(other.out_line(), "k");
        other.signal("TERM");
        other.ended().expect(0);
        signal("KILL", &format!("-{}", orphan.trim()));
        first.ended();
    });
}

#[test]
fn a_command_whose_lease_is_lost_is_ended_and_does_not_count() {
    on_each_server(|home| {
        let dir = with_pipes(home);
        home.add(&["k"]);
        let flags = ["--worker", "--lease", LEASE, "--log", "log", "--shell", WAITS];
        let mut first = home.run(&flags).start();
        let pid = dir.hear("pid");
        first.signal("STOP");
        dir.write("second", "");
        let mut other = home.run(&flags[..3]).args(&flags[5..]).start();
        assert_eq!(other.out_line(), "k");
        first.signal("CONT");
        first.err_line("lost the lease of k");
        ends(pid.trim());
        // What the other has printed, the store may not know yet.
        while home.status()["processing"] != 0 {}
        for worker in [first, other] {
            worker.signal("TERM");
            let ran = worker.ended().expect(0);
            assert!(ran.err.contains("0 keys failed"), "{}", ran.err);
            // It was told once more, as an end that came too late.
            assert!(!ran.err.contains("runs again"), "{}", ran.err);
        }
        assert_eq!(dir.events("log", "lost").len(), 1);
        assert_eq!(dir.events("log", "finished").len(), 0);
    });
}

#[test]
fn watch_tells_again_and_again_until_a_signal() {
    on_each_server(|home| {
        home.make();
        let watch = ["watch", "--interval", "100ms", "--json"];
        let mut live = home.requeue().args(watch).start();
        assert!(live.out_line().contains("\"ready\":0"));
        home.add(&["k"]);
        while !live.out_line().contains("\"ready\":1") {}
        live.signal_now("INT");
        live.ended().expect(0);
    });
}

#[test]
fn an_embedded_queue_goes_on_after_it_was_killed() {
    let home = embedded();
    let dir = with_pipes(&home);
    let script = "mkdir lock.{} || echo overlap; \
                  if [ {} = b ] && [ ! -e second ]; then echo $$ > pid; cat go; fi; \
                  rmdir lock.{}; echo {}";
    let mut live = home.run(&["-j1", "--shell", script]).start();
    for key in ["a", "b", "c"] {
        live.say(key);
    }
    assert_eq!(live.out_line(), "a");
    let pid = dir.hear("pid").trim().to_owned();
    live.signal("KILL");
    dir.write("second", "");
    let mut live = home.run(&["-j1", "--shell", script]).start();
    live.end_input();
    let note = format!("key \"b\" is still run by process {pid}");
    live.err_line(&note);
    assert_eq!(live.out_line(), "c", "what is not run by anybody goes on");
    assert!(is_alive(&pid));
    live.wait_for_status("ready 0  running 0/1");
    dir.release("go");
    assert_eq!(live.out_line(), "b", "it ran again once the earlier one had ended");
    let ran = live.ended().expect(0);
    assert!(!ran.out.contains("overlap"), "{}", ran.out);
    assert!(!dir.path("queue.db.running").exists());
}

#[test]
fn no_acknowledged_key_is_lost_by_kill() {
    let home = embedded();
    let keys = lines((0..500).map(|key| key.to_string()));
    let mut live = home.run(&["-j4", "--shell", "echo {} >> ran"]).start();
    live.pour(&keys);
    live.wait_for_status("done 1");
    live.end_input();
    live.signal("KILL");
    live.ended();
    // What was read but not acknowledged is told again.
    home.run(&["-j4", "--shell", "echo {} >> ran"]).stdin(keys).ran().expect(0);
    let ran = home.dir.read("ran");
    let mut ran: Vec<u32> = ran.lines().map(|key| key.parse().unwrap()).collect();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran, (0..500).collect::<Vec<_>>());
}
