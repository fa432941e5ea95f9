//! The output of commands, progress and summaries.

use crate::harness::{Dir, lines};

#[test]
fn output_of_a_run_stays_together() {
    let dir = Dir::new();
    let script = "for i in 1 2 3 4 5; do echo {} $i; echo {} $i >&2; done";
    let keys = lines((0..40).map(|key| format!("k{key}")));
    let ran = dir
        .run(["-j8", "--progress=none", "--shell", script])
        .stdin(keys)
        .ran()
        .expect(0);
    for text in [&ran.out, &ran.err] {
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 200);
        for run in lines.chunks(5) {
            let key = run[0].split(' ').next().unwrap();
            let wanted: Vec<_> = (1..=5).map(|i| format!("{key} {i}")).collect();
            assert_eq!(run, wanted);
        }
    }
}

#[test]
fn large_output_is_complete() {
    let dir = Dir::new();
    let script = "head -c 3000000 /dev/zero | tr '\\0' {}";
    let ran = dir.run(["-j2", "--shell", script]).stdin("x\ny\n").ran().expect(0);
    let (x, y) = ("x".repeat(3_000_000), "y".repeat(3_000_000));
    assert!(ran.out == format!("{x}{y}") || ran.out == format!("{y}{x}"));
}

/// Each piece of an unfinished line once caused a search of the whole line; 60 MB took minutes.
#[test]
fn long_line_is_printed_in_linear_time() {
    let script = "head -c 60000000 /dev/zero | tr '\\0' {}";
    let flags = ["--line-buffer", "--shell", script, ":::", "x"];
    let ran = Dir::new().run(flags).ran().expect(0);
    assert!(ran.out == "x".repeat(60_000_000));
}

/// A key with a newline once split its tag over two lines.
#[test]
fn tag_stays_on_one_line() {
    let keys = b"two\nlines\0a\tb\0".to_vec();
    let flags = ["-0", "--tag", "--", "printf", "hi\\n%.0s"];
    let ran = Dir::new().run(flags).stdin(keys).ran().expect(0);
    assert_eq!(ran.sorted(), ["a\\tb\thi", "two\\nlines\thi"]);
}

#[test]
fn lines_can_be_tagged_with_their_key() {
    let dir = Dir::new();
    let script = "echo one; printf two; echo bad >&2 #";
    let flags = ["--tag", "--progress=none", "--shell", script, ":::", "k"];
    let ran = dir.run(flags).ran().expect(0);
    assert_eq!(ran.out, "k\tone\nk\ttwo\n");
    assert_eq!(ran.err, "k\tbad\n");
}

#[test]
fn line_buffer_prints_lines_as_they_are_written() {
    let dir = Dir::new();
    dir.fifo("go");
    let script =
        "echo half; printf more; cat go > /dev/null; echo; echo oops >&2; exit 1 #";
    let flags =
        ["--line-buffer", "--tag", "--max-retries", "0", "--shell", script, ":::", "k"];
    let mut live = dir.run(flags).start();
    assert_eq!(live.out_line(), "k\thalf");
    dir.release("go");
    assert_eq!(live.out_line(), "k\tmore");
    let ran = live.wait().expect(1);
    assert!(
        ran.err.contains("k\toops\n") && ran.err.contains("after 1 run: oops"),
        "{}",
        ran.err
    );
}

#[test]
fn quiet_success_prints_only_failed_runs() {
    let dir = Dir::new();
    let script = "echo said {}; [ {} = good ]";
    let flags = ["--quiet-success", "--max-retries", "0", "--shell", script];
    let ran = dir.run(flags).stdin("good\nbad\n").ran().expect(1);
    assert_eq!(ran.out, "said bad\n");
}

#[test]
fn output_can_go_to_files() {
    let dir = Dir::new();
    let script = "echo out {}; echo err {} >&2; [ {} != b/c ]";
    let flags = ["--output", "made/here", "--max-retries", "0", "--shell", script];
    let ran = dir.run(flags).stdin("a\nb/c\n").ran().expect(1);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("exit code 1 after 1 run: err b/c"), "{}", ran.err);
    assert_eq!(dir.read("made/here/a.out"), "out a\n");
    assert_eq!(dir.read("made/here/b%2Fc.err"), "err b/c\n");
}

#[test]
fn unusable_output_directory_is_reported_with_its_flag() {
    let dir = Dir::new();
    dir.write("file", "");
    let ran = dir.run(["--output", "file/x", "true"]).ran().expect(2);
    assert!(ran.err.contains("--output file/x"), "{}", ran.err);
}

#[test]
fn success_is_silent_without_progress() {
    let ran = Dir::new().run(["--progress", "none", "true"]).stdin("a\n").ran().expect(0);
    assert_eq!(ran.err, "");
}

#[test]
fn failures_are_reported_without_progress() {
    let flags =
        ["--progress=none", "--max-retries=0", "--shell", "echo why >&2; exit 3 #"];
    let ran = Dir::new().run(flags).stdin("a\n").ran().expect(1);
    assert!(ran.err.contains("failed: a: exit code 3 after 1 run: why"), "{}", ran.err);
}

#[test]
fn status_is_not_drawn_without_a_terminal() {
    for form in ["--progress=bar", "--progress=auto", "--progress=line"] {
        let ran = Dir::new().run([form, "echo"]).stdin("a\n").ran().expect(0);
        assert!(!ran.err.contains('\u{1b}'), "{form}: {}", ran.err);
        assert!(
            ran.err.contains("requeue: 1 key: 1 ok, 0 failed; 1 run, 0 retries; "),
            "{}",
            ran.err
        );
    }
}

#[test]
fn usr1_prints_a_summary() {
    let dir = Dir::new();
    dir.fifo("go");
    let script = "[ {} = bad ] && { echo no good >&2; exit 4; }; cat go >/dev/null";
    let mut live = dir.run(["-j2", "--max-retries=0", "--shell", script]).start();
    live.send("bad");
    live.send("slow");
    live.wait_for_status("running 1/2  delayed 0  done 0  failed 1");
    live.signal("USR1");
    live.err_line("slow");
    live.err_line("failed: bad: exit code 4 after 1 run: no good");
    dir.release("go");
    live.wait().expect(1);
}

#[test]
fn slowest_keys_are_listed() {
    let dir = Dir::new();
    dir.fifo("go");
    let flags = ["--timeout", "150ms", "--max-retries", "0", "--shell"];
    let ran = dir.run(flags).arg("[ {} = quick ] || cat go").stdin("quick\nslow\n").ran();
    let ran = ran.expect(1);
    let slowest = ran.err.lines().find(|line| line.contains("slowest:")).unwrap();
    assert!(slowest.contains("slow 1"), "{slowest}");
}
