//! Many lines and hot keys.

use crate::harness::{Dir, WAITS, lines};

#[test]
fn key_never_runs_twice_at_the_same_time() {
    let dir = Dir::new();
    let script = "mkdir lock.{} || echo overlap; echo {}; rmdir lock.{}";
    let lines = lines((0..1000).map(|line| format!("k{}", line * 7 % 20)));
    let ran = dir.run(["-j8", "--shell", script]).stdin(lines).ran().expect(0);
    assert!(!ran.out.contains("overlap"), "{}", ran.out);
    let mut keys = ran.sorted();
    let runs = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), 20);
    assert!(runs <= 200, "{runs} runs for 1000 lines over 20 keys");
}

/// The key once counted as running before its process had looked for `second`; on a busy
/// machine, the test then waited forever. Receiving its pid avoids that.
#[test]
fn key_added_while_running_runs_exactly_once_more() {
    let dir = Dir::new();
    dir.pipes();
    let mut live = dir.run(["-j4", "--shell", WAITS]).start();
    live.send("k");
    dir.receive("pid");
    for _ in 0..10 {
        live.send("k");
    }
    live.end_input();
    live.wait_for_status("merged 9");
    dir.write("second", "");
    dir.release("go");
    assert_eq!(live.wait().expect(0).out, "k\nk\n");
}

#[test]
fn memory_depends_on_distinct_keys_not_on_lines() {
    let stress = std::env::var_os("REQUEUE_STRESS").is_some();
    let (count, keys) = if stress { (1_000_000, 100_000) } else { (100_000, 2_000) };
    let dir = Dir::new();
    dir.fifo("go");
    let command = ["-j8", "sh", "-c", "[ $1 != hold ] || cat go > /dev/null", "sh"];
    let mut live = dir.run(command).start();
    live.send("hold");
    let text = lines((0..count).map(|line| format!("key-{:09}", line % keys)));
    live.send_text(&text);
    live.end_input();
    live.wait_for_status("ready 0  running 1/8");
    let memory = live.peak_memory();
    dir.release("go");
    let ran = live.wait().expect(0);
    assert!(ran.err.contains(" ok, 0 failed; "), "{}", ran.err);
    let runs: u64 = ran
        .err
        .rsplit(" failed; ")
        .next()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((keys + 1..=count + 1).contains(&runs), "each key ran: {runs} runs");
    assert!(memory < 32_000_000 + keys * 250, "{memory} bytes for {keys} keys");
}
