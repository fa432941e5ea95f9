//! Many lines, hot keys, and what is promised of each key.

use crate::harness::{Dir, WAITS, lines};

#[test]
fn a_key_never_runs_twice_at_a_time() {
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

/// A run counts from when its process is made. On a busy machine that process looked for
/// `second` only when it was there, and nobody was left to be released.
#[test]
fn a_key_that_comes_again_while_it_runs_runs_exactly_once_more() {
    let dir = Dir::new();
    dir.pipes();
    let mut live = dir.run(["-j4", "--shell", WAITS]).start();
    live.say("k");
    dir.hear("pid");
    for _ in 0..10 {
        live.say("k");
    }
    live.end_input();
    live.wait_for_status("merged 9");
    dir.write("second", "");
    dir.release("go");
    assert_eq!(live.ended().expect(0).out, "k\nk\n");
}

#[test]
fn many_lines_need_memory_for_their_keys_only() {
    let stress = std::env::var_os("REQUEUE_STRESS").is_some();
    let (count, keys) = if stress { (1_000_000, 100_000) } else { (100_000, 2_000) };
    let dir = Dir::new();
    dir.fifo("go");
    let command = ["-j8", "sh", "-c", "[ $1 != hold ] || cat go > /dev/null", "sh"];
    let mut live = dir.run(command).start();
    live.say("hold");
    let text = lines((0..count).map(|line| format!("key-{:09}", line % keys)));
    live.pour(&text);
    live.end_input();
    live.wait_for_status("ready 0  running 1/8");
    let memory = live.most_memory();
    dir.release("go");
    let ran = live.ended().expect(0);
    assert!(ran.err.contains("0 keys failed"), "{}", ran.err);
    let runs: u64 = ran
        .err
        .split("requeue: ")
        .last()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((keys + 1..=count + 1).contains(&runs), "each key ran: {runs} runs");
    assert!(memory < 32_000_000 + keys * 250, "{memory} bytes for {keys} keys");
}
