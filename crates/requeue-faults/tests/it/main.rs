//! Short fault tests: one run for each store, and seeded bugs that the checker must find.
//!
//! They need the servers of the distribution's packages. Without them a test prints that it
//! was skipped, and fails if `CI=true`. `scripts/faults` does long runs.
#![expect(
    clippy::print_stdout,
    reason = "a test prints its report, or why it was skipped"
)]

use std::path::Path;
use std::process::Command;

/// The duration of each run.
const SECONDS: &str = "8";

/// One load is enough for most stores. Redis has other code paths when workers mostly wait.
const BUSY: [&str; 2] = ["--load", "busy"];

fn faults(arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_requeue-faults")).args(arguments).output();
    let output = output.expect("the program is built");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn assert_passes(store: &str, flags: &[&str]) {
    let run = ["run", "--store", store, "--seconds", SECONDS];
    let (passed, report) = faults(&[&run, flags].concat());
    println!("{report}");
    assert!(passed, "{report}");
}

fn assert_finds(store: &str, bugs: &[&str]) {
    let (found, report) = faults(&[&["bugs", "--store", store], bugs].concat());
    println!("{report}");
    assert!(found, "{report}");
    assert_eq!(report.matches("found by").count(), bugs.len(), "{report}");
}

/// Reports a missing server, which is an error in CI.
fn check_installed(server: &str, is_installed: bool) -> bool {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(is_installed || !is_ci, "{server} is missing: install Debian's package");
    if !is_installed {
        println!("{server} is missing: skipping this test");
    }
    is_installed
}

fn has_redis() -> bool {
    let mut paths = std::env::var_os("PATH").into_iter();
    let is_installed = paths.any(|path| {
        std::env::split_paths(&path).any(|folder| folder.join("redis-server").exists())
    });
    check_installed("redis-server", is_installed)
}

fn has_postgres() -> bool {
    check_installed("postgresql", Path::new("/usr/lib/postgresql").is_dir())
}

#[test]
fn memory_store_survives_stops() {
    assert_passes("memory", &BUSY);
}

#[test]
fn folder_store_survives_kills_full_disks_and_clock_steps() {
    assert_passes("folder", &BUSY);
}

/// A steady run needs two disturbances of six seconds.
#[test]
fn memory_store_loses_no_lease_to_a_single_fault() {
    let (passed, report) =
        faults(&["run", "--store", "memory", "--load", "steady", "--seconds", "14"]);
    println!("{report}");
    assert!(passed, "{report}");
}

#[test]
fn redis_store_survives_process_server_and_connection_faults() {
    if has_redis() {
        assert_passes("redis", &[]);
    }
}

#[test]
fn redis_cluster_store_survives_node_faults_moving_slots_and_failovers() {
    if has_redis() {
        assert_passes("cluster", &BUSY);
    }
}

#[test]
fn postgres_store_survives_process_server_and_connection_faults() {
    if has_postgres() {
        assert_passes("postgres", &BUSY);
    }
}

#[test]
fn postgres_store_with_only_adds_on_disk_loses_no_add() {
    if has_postgres() {
        assert_passes("postgres", &["--load", "busy", "--durability", "adds"]);
    }
}

#[test]
fn bugs_of_any_store_are_found() {
    let bugs = [
        "no-fence",
        "no-dirty-bit",
        "dirty-finish-ignored",
        "extra-run",
        "tokens-go-back",
    ];
    assert_finds("memory", &bugs);
}

#[test]
fn bugs_with_dead_keys_are_found() {
    assert_finds("memory", &["dead-keys-vanish", "dead-keys-stay-dead", "buried-add"]);
}

#[test]
fn bugs_of_heartbeats_batches_and_waiters_are_found() {
    assert_finds("memory", &["heartbeat-sleeps", "batch-fails", "unnoticed-delay"]);
}

#[test]
fn bugs_that_need_several_processes_or_a_restart_are_found() {
    if has_redis() {
        assert_finds("redis", &["tokens-restart", "early-expiry", "bucket-per-process"]);
    }
}
