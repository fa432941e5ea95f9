//! What is seen of the runs.

use crate::harness::{Dir, lines};

#[test]
fn the_output_of_a_run_stays_together() {
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
fn much_output_comes_through_whole() {
    let dir = Dir::new();
    let script = "head -c 3000000 /dev/zero | tr '\\0' {}";
    let ran = dir.run(["-j2", "--shell", script]).stdin("x\ny\n").ran().expect(0);
    let (x, y) = ("x".repeat(3_000_000), "y".repeat(3_000_000));
    assert!(ran.out == format!("{x}{y}") || ran.out == format!("{y}{x}"));
}

/// All of a line that had begun was searched for its end with each piece that came: one
/// of 60 MB took minutes.
#[test]
fn a_long_line_comes_through_as_fast_as_it_is_written() {
    let script = "head -c 60000000 /dev/zero | tr '\\0' {}";
    let flags = ["--line-buffer", "--shell", script, ":::", "x"];
    let ran = Dir::new().run(flags).ran().expect(0);
    assert!(ran.out == "x".repeat(60_000_000));
}

/// A key of two lines made a line of its own before the one that it was a tag of.
#[test]
fn a_tag_stays_on_its_line() {
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
fn lines_can_be_seen_as_they_come() {
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
    let ran = live.ended().expect(1);
    assert!(
        ran.err.contains("k\toops\n") && ran.err.contains("after 1 run: oops"),
        "{}",
        ran.err
    );
}

#[test]
fn only_failures_need_be_seen() {
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
fn a_folder_that_cannot_be_made_is_named_with_its_flag() {
    let dir = Dir::new();
    dir.write("file", "");
    let ran = dir.run(["--output", "file/x", "true"]).ran().expect(2);
    assert!(ran.err.contains("--output file/x"), "{}", ran.err);
}

#[test]
fn nothing_is_said_of_a_success_that_nobody_watches() {
    let ran = Dir::new().run(["--progress", "none", "true"]).stdin("a\n").ran().expect(0);
    assert_eq!(ran.err, "");
}

#[test]
fn failures_are_told_even_if_nobody_watches() {
    let flags =
        ["--progress=none", "--max-retries=0", "--shell", "echo why >&2; exit 3 #"];
    let ran = Dir::new().run(flags).stdin("a\n").ran().expect(1);
    assert!(ran.err.contains("failed: a: exit code 3 after 1 run: why"), "{}", ran.err);
}

#[test]
fn a_bar_is_not_drawn_where_nobody_can_see_it() {
    for form in ["--progress=bar", "--progress=auto", "--progress=line"] {
        let ran = Dir::new().run([form, "echo"]).stdin("a\n").ran().expect(0);
        assert!(!ran.err.contains('\u{1b}'), "{form}: {}", ran.err);
        assert!(
            ran.err.contains("1 run in") && ran.err.contains("1 succeeded"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn a_summary_can_be_asked_for() {
    let dir = Dir::new();
    dir.fifo("go");
    let script = "[ {} = bad ] && { echo no good >&2; exit 4; }; cat go >/dev/null";
    let mut live = dir.run(["-j2", "--max-retries=0", "--shell", script]).start();
    live.say("bad");
    live.say("slow");
    live.wait_for_status("running 1/2  delayed 0  done 0  failed 1");
    live.signal("USR1");
    live.err_line("slow");
    live.err_line("failed: bad: exit code 4 after 1 run: no good");
    dir.release("go");
    live.ended().expect(1);
}

#[test]
fn the_slowest_keys_are_named() {
    let dir = Dir::new();
    dir.fifo("go");
    let flags = ["--timeout", "150ms", "--max-retries", "0", "--shell"];
    let ran = dir.run(flags).arg("[ {} = quick ] || cat go").stdin("quick\nslow\n").ran();
    let ran = ran.expect(1);
    let slowest = ran.err.lines().find(|line| line.contains("slowest:")).unwrap();
    assert!(slowest.contains("slow 1"), "{slowest}");
}
