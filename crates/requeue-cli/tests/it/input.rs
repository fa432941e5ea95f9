//! The sources of keys.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::harness::{Dir, numbers};

#[test]
fn distinct_lines_run_once_each() {
    let dir = Dir::new();
    dir.write("keys", "a\nb\na\nb\na\n");
    // The first key blocks the only worker until all lines are read.
    dir.fifo("go");
    let command =
        ["-j1", "--", "sh", "-c", "[ $1 != hold ] || cat go >/dev/null; echo $1", "sh"];
    let mut live = dir.run(command).start();
    for key in ["hold", "a", "b", "a", "b", "a"] {
        live.send(key);
    }
    live.end_input();
    live.wait_for_status("ready 2");
    dir.release("go");
    let ran = live.wait().expect(0);
    assert_eq!(ran.sorted(), ["a", "b", "hold"]);
    assert!(ran.err.contains("merged 3 of 6 lines"), "{}", ran.err);
}

#[test]
fn lines_read_together_are_merged_even_if_the_first_is_running() {
    let dir = Dir::new();
    let ran = dir.run(["echo", "{}"]).stdin("a\nb\na\n").ran().expect(0);
    assert_eq!(ran.sorted(), ["a", "b"]);
    let ran = dir.run(["echo", "{}", ":::", "a", "b", "a"]).ran().expect(0);
    assert_eq!(ran.sorted(), ["a", "b"]);
}

#[test]
fn blank_lines_are_skipped_and_the_last_line_needs_no_newline() {
    let dir = Dir::new();
    let ran = dir.run(["echo", "<{}>"]).stdin("a\n\n   \n\t\nb b").ran().expect(0);
    assert_eq!(ran.sorted(), ["<a>", "<b b>"]);
}

#[test]
fn keys_can_be_separated_by_nul() {
    let dir = Dir::new();
    for flag in ["-0", "--null"] {
        let ran = dir.run([flag, "printf", "[%s]"]).stdin("a\nb\0c\0\0").ran().expect(0);
        assert!(ran.out.contains("[a\nb]") && ran.out.contains("[c]"), "{}", ran.out);
    }
}

/// Keys of only spaces were once skipped silently, like blank lines.
#[test]
fn blank_keys_are_kept_with_nul_and_as_arguments() {
    let dir = Dir::new();
    let ran = dir.run(["-0", "printf", "[%s]"]).stdin(" \0\0").ran().expect(0);
    assert_eq!(ran.out, "[ ]");
    let ran = dir.run(["printf", "[%s]", ":::", " ", ""]).ran().expect(0);
    assert_eq!(ran.out, "[ ]");
}

#[test]
fn empty_input_succeeds() {
    let ran = Dir::new().run(["echo"]).ran().expect(0);
    assert_eq!(ran.out, "");
}

#[test]
fn keys_are_bytes_and_quotes_are_not_special() {
    let dir = Dir::new();
    let odd = b"\xff\xfe it's \"$HOME\" \\ `x`\n".to_vec();
    let ran = dir.run(["sh", "-c", "printf %s \"$1\" > file", "sh"]).stdin(odd).ran();
    ran.expect(0);
    let wanted = b"\xff\xfe it's \"$HOME\" \\ `x`";
    assert_eq!(std::fs::read(dir.path("file")).unwrap(), wanted);
}

#[test]
fn keys_can_come_from_files() {
    let dir = Dir::new();
    dir.write("one", "a\nb\n");
    dir.write("two", "c\n");
    let ran = dir.run(["-a", "one", "--arg-file", "two", "echo"]).stdin("no\n").ran();
    assert_eq!(ran.expect(0).sorted(), ["a", "b", "c"]);
    let ran = dir.run(["-a", "-", "echo"]).stdin("yes\n").ran();
    assert_eq!(ran.expect(0).out, "yes\n");
}

#[test]
fn keys_can_be_arguments_after_three_colons() {
    let dir = Dir::new();
    let ran = dir.run(["--", "echo", "{}!", ":::", "a", "b c", ""]).stdin("no\n").ran();
    assert_eq!(ran.expect(0).sorted(), ["a!", "b c!"]);
    let bytes = OsString::from_vec(b"\xff".to_vec());
    let ran = dir.run(["sh", "-c", "printf %s \"$1\" | wc -c", "sh", ":::"]).arg(bytes);
    assert_eq!(ran.ran().expect(0).out.trim(), "1");
}

#[test]
fn missing_file_is_reported_with_its_flag() {
    let ran = Dir::new().run(["-a", "nowhere", "echo"]).ran().expect(2);
    assert!(ran.err.contains("--arg-file nowhere"), "{}", ran.err);
    let ran = Dir::new().run(["-a", ".", "echo"]).ran().expect(2);
    assert!(ran.err.contains("--arg-file .: it is a directory"), "{}", ran.err);
}

#[test]
fn stream_is_processed_as_it_arrives() {
    let dir = Dir::new();
    let mut live = dir.run(["--", "echo", "got"]).start();
    for key in ["a", "b", "a"] {
        live.send(key);
        assert_eq!(live.out_line(), format!("got {key}"));
    }
    live.wait().expect(0);
}

#[test]
fn reading_pauses_while_too_many_keys_are_queued() {
    let dir = Dir::new();
    let keys = numbers(300);
    let flags = ["--max-queued", "5", "-j2", "--log", "log", "true"];
    dir.run(flags).stdin(keys).ran().expect(0);
    let (mut queued, mut most, mut started) = (0, 0, 0);
    for line in dir.log("log") {
        match line["event"].as_str() {
            Some("added") => queued += 1,
            Some("started") => (queued, started) = (queued - 1, started + 1),
            _ => {}
        }
        most = most.max(queued);
    }
    assert_eq!(started, 300);
    // A key that a worker has taken but not started is no longer in the queue.
    assert!(most <= 5 + 2, "{most} keys were queued");
}
