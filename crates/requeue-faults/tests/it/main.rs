//! Short runs of the fault test: one for each store, and seeded bugs that must be found.
//!
//! They need the servers of the distribution's packages; without them a test says that it is
//! left out, and fails if `CI=true`. The long runs are `scripts/faults`.
#![expect(
    clippy::print_stdout,
    reason = "a test says what it found, or why it is left out"
)]

use std::path::Path;
use std::process::Command;

/// How long each run is disturbed, in seconds.
const SECONDS: &str = "8";

/// For stores whose workers wait the same way whatever the load; Redis has others for when
/// all is calm.
const BUSY: [&str; 2] = ["--load", "busy"];

fn faults(arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_requeue-faults")).args(arguments).output();
    let output = output.expect("the program is built");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// With these flags; under each load if none is named.
fn keeps_its_promises(store: &str, flags: &[&str]) {
    let run = ["run", "--store", store, "--seconds", SECONDS];
    let (kept, report) = faults(&[&run, flags].concat());
    println!("{report}");
    assert!(kept, "{report}");
}

fn finds(store: &str, bugs: &[&str]) {
    let (found, report) = faults(&[&["mutants", "--store", store], bugs].concat());
    println!("{report}");
    assert!(found, "{report}");
    assert_eq!(report.matches("found by").count(), bugs.len(), "{report}");
}

/// Whether a server is installed: a missing one is an error in CI.
fn is_installed(server: &str, is_there: bool) -> bool {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(is_there || !is_ci, "{server} is missing: install Debian's package");
    if !is_there {
        println!("{server} is missing: this test is left out");
    }
    is_there
}

fn has_redis() -> bool {
    let mut folders = std::env::var_os("PATH").into_iter();
    let on_path = folders.any(|path| {
        std::env::split_paths(&path).any(|folder| folder.join("redis-server").exists())
    });
    is_installed("redis-server", on_path)
}

fn has_postgres() -> bool {
    is_installed("postgresql", Path::new("/usr/lib/postgresql").is_dir())
}

#[test]
fn a_queue_in_memory_keeps_its_promises_while_its_process_is_stopped() {
    keeps_its_promises("memory", &BUSY);
}

#[test]
fn a_queue_on_disk_keeps_its_promises_while_its_process_is_killed() {
    keeps_its_promises("fjall", &BUSY);
}

#[test]
fn a_queue_in_redis_keeps_its_promises_while_all_around_it_fails() {
    if has_redis() {
        keeps_its_promises("redis", &[]);
    }
}

#[test]
fn a_queue_in_a_redis_cluster_keeps_its_promises_while_nodes_fail_and_slots_move() {
    if has_redis() {
        keeps_its_promises("cluster", &BUSY);
    }
}

#[test]
fn a_queue_in_postgresql_keeps_its_promises_while_all_around_it_fails() {
    if has_postgres() {
        keeps_its_promises("postgres", &BUSY);
    }
}

#[test]
fn a_queue_in_postgresql_with_only_adds_on_disk_loses_none_of_them() {
    if has_postgres() {
        keeps_its_promises("postgres", &["--load", "busy", "--durability", "adds"]);
    }
}

#[test]
fn bugs_that_need_no_engine_are_found() {
    finds("memory", &["no-fence", "no-dirty-bit", "two-branch-done", "extra-run"]);
}

#[test]
fn bugs_with_the_dead_are_found() {
    finds("memory", &["no-grave", "dead-stay-dead"]);
}

#[test]
fn bugs_that_show_among_processes_or_when_an_engine_dies_are_found() {
    if has_redis() {
        finds("redis", &["incr-token", "early-expiry", "own-bucket"]);
    }
}
