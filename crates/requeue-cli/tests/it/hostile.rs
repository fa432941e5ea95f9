//! Keys that try to become code, to control the terminal, or to fill the memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::Dir;
use crate::test_store::embedded;

/// Keys that create the file `pwned` if a shell parses them in some context.
const KEYS: [&str; 16] = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned;",
    "'; touch pwned; '",
    "'\"; touch pwned; \"'",
    "\"; touch pwned; \"",
    "\"'; touch pwned; '\"",
    "\ntouch pwned\n",
    "\nEOF\ntouch pwned\n",
    "a[$(touch pwned)]",
    "x $(touch pwned) y",
    "} $(touch pwned)",
    ") touch pwned #",
    "\\\"; touch pwned; \\\"",
    "${x:-$(touch pwned)}",
    "\\'; touch pwned; \\'",
];

/// Templates that print the key between brackets, however they quote it.
const EXACT: [&str; 13] = [
    "printf '[%s]' {}",
    "printf '[%s]' \"{}\"",
    "printf '[%s]' '{}'",
    "printf '%s' '['{}']'",
    "printf %s \"[\"{}\"]\"",
    "printf '%s' \"[\"'{}'\"]\"",
    "printf \"[%s]\" \"${no:-{}}\"",
    "printf '[%s]' ${no:-'{}'}",
    "f() { printf '[%s]' {}; }; f other",
    "(printf '[%s]' {})",
    "k='{}'; printf '[%s]' \"$k\"",
    "case {} in '{}') printf '[%s]' \"{}\";; esac",
    "printf '[%s]' {} # it's {}",
];

/// Templates in which a key may be split into words, but must not become code.
const SAFE: [&str; 12] = [
    "echo `echo {}`",
    "echo `echo '{}'`",
    "echo \"`echo \"{}\"`\"",
    "echo `echo \\`echo {}\\``",
    "echo $(echo '{}')",
    "echo \"$(echo '{}' \"{}\" {})\"",
    "echo \"$(case {} in x) echo {};; *) echo '{}';; esac)\"",
    "cat <<EOF\n{}\n'{}'\n\"{}\"\n$(echo {})\nEOF\n",
    "cat <<-EOF\n\t{}\n\tEOF\n",
    "x={}; echo $x",
    "echo ${no:-{}} \"${no:-'{}'}\"",
    "echo \"it's {}\" 'say \"{}\"'",
];

/// `printf '$(id)\n' | requeue run --shell 'echo "{}"'` once ran `id`, and so did `'{}'`.
#[test]
fn key_never_becomes_code_however_the_template_quotes_it() {
    for template in EXACT.iter().chain(&SAFE) {
        let dir = Dir::new();
        let keys: String = KEYS.iter().flat_map(|key| [key, "\0"]).collect();
        let flags = ["-0", "-j1", "--max-retries=0", "--shell", template];
        let ran = dir.run(flags).stdin(keys).ran();
        assert!(!dir.path("pwned").exists(), "{template}: {ran:?}");
        if EXACT.contains(template) {
            let wanted: String = KEYS.iter().flat_map(|key| ["[", key, "]"]).collect();
            assert_eq!(ran.expect(0).out, wanted, "{template}");
        }
    }
}

/// bash evaluates array subscripts in arithmetic, and a here-document with a quoted delimiter
/// expands nothing.
#[test]
fn templates_that_cannot_be_safe_are_refused() {
    for (template, why) in [
        ("echo $(({} + 1))", "arithmetic"),
        ("echo \"$(( 1 + {} ))\"", "arithmetic"),
        ("if (( {} > 1 )); then echo; fi", "arithmetic"),
        ("echo ${x:{}}", "arithmetic"),
        ("a[{}]=1", "arithmetic"),
        ("[[ {} -eq 1 ]]", "[["),
        ("cat <<'EOF'\n{}\nEOF\n", "here-document"),
        ("cat <<\\EOF\n{}\nEOF\n", "here-document"),
    ] {
        let dir = Dir::new();
        let ran = dir.run(["--shell", template]).stdin("a[$(touch pwned)]\n").ran();
        assert!(!dir.path("pwned").exists(), "{template}");
        let ran = ran.expect(2);
        assert!(ran.err.contains(why) && ran.err.contains("{}"), "{}", ran.err);
    }
}

/// `--tag` once printed escape sequences of a key, and messages did the same.
#[test]
fn key_cannot_control_the_terminal() {
    let dir = Dir::new();
    let key = "a\u{1b}]0;title\u{7}\u{9b}2J\u{7f}\u{202e}b";
    let flags = ["-0", "--tag", "--max-retries=0", "--log", "log"];
    let script = "echo out; echo err >&2; exit 1 #";
    let ran = dir.run(flags).args(["--shell", script]).stdin(key).ran().expect(1);
    let all = ran.out + &ran.err + &dir.read("log");
    let raw = |c: char| (c.is_control() && !"\n\t".contains(c)) || c == '\u{202e}';
    assert!(!all.contains(raw), "{all:?}");
    assert!(all.contains("a\\u{1b}]0;title"), "{all:?}");
    assert_eq!(dir.events("log", "added")[0]["key"], key);
}

/// Bytes that are not UTF-8 can be control characters of an 8-bit terminal.
#[test]
fn tag_escapes_bytes_that_are_not_utf8() {
    let flags = ["--tag", "--", "printf", "hi\\n%.0s"];
    let ran = Dir::new().run(flags).stdin(b"a\x9b2Jb\n".to_vec()).ran().expect(0);
    assert_eq!(ran.out, "a\\x9b2Jb\thi\n");
}

#[test]
fn errors_escape_control_characters() {
    let dir = Dir::new();
    for args in [
        &["run", "-a", "\u{1b}[2Jfile", "true"][..],
        &["run", "\u{1b}[2Jprogram"],
        &["status", "--store", "./\u{1b}[2J"],
        &["run", "--fair-by", "(\u{1b}[2J", "true"],
    ] {
        let ran = dir.requeue().args(args).ran();
        assert!(!ran.err.contains('\u{1b}'), "{args:?}: {:?}", ran.err);
        assert!(ran.err.contains("[2J"), "{args:?}: {:?}", ran.err);
    }
}

/// The file was once readable by all users until it was deleted, and as long as another
/// process had it open.
#[test]
fn buffered_output_is_private() {
    let dir = Dir::new();
    dir.pipes();
    let script = "umask 0; yes | head -c 3000000; echo $$ > pid; cat go #";
    let live = dir.run(["--shell", script, ":::", "k"]).start();
    dir.receive("pid");
    let spilled = || {
        let files = fs::read_dir(format!("/proc/{}/fd", live.pid())).unwrap().flatten();
        let mut files = files.filter(|file| {
            let target = fs::read_link(file.path()).unwrap_or_default();
            target.to_string_lossy().contains("/requeue-")
        });
        files.next().and_then(|file| fs::metadata(file.path()).ok())
    };
    let file = loop {
        if let Some(file) = spilled() {
            break file;
        }
        std::thread::yield_now();
    };
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    dir.release("go");
    live.wait().expect(0);
}

/// Commands once inherited the password of the store if it was given in the environment.
#[test]
fn commands_do_not_inherit_store_secrets() {
    let Some(url) = crate::test_store::server("REQUEUE_POSTGRES_URL") else { return };
    let queue = crate::test_store::queue_name();
    let dir = Dir::new();
    let script = "echo [$REQUEUE_STORE] [$PGPASSWORD] #";
    let run = || {
        let run = dir.run(["--shell", script, ":::", "k"]);
        run.env("REQUEUE_QUEUE", &queue).env("REQUEUE_STORE", &url)
    };
    assert_eq!(run().ran().expect(0).out, "[] []\n");
    let (user, host) = url.rsplit_once('@').unwrap();
    let (user, password) = user.rsplit_once(':').unwrap();
    let plain = format!("{user}@{host}");
    let ran = run().env("REQUEUE_STORE", &plain).env("PGPASSWORD", password).ran();
    assert_eq!(ran.expect(0).out, format!("[{plain}] []\n"));
}

/// A command on another store needs its address, which has no password.
#[test]
fn commands_inherit_a_store_without_a_password() {
    let store = embedded();
    let script = "echo $REQUEUE_STORE $PGPASSWORD #";
    let run = store.run(&["--shell", script, ":::", "k"]).env("PGPASSWORD", "other");
    assert_eq!(run.ran().expect(0).out, "queue.db other\n");
}

/// `requeue add </dev/zero` once filled the memory of the machine.
#[test]
fn endless_line_is_refused() {
    let store = embedded();
    let zero = "exec \"$0\" \"$@\" < /dev/zero";
    let requeue = env!("CARGO_BIN_EXE_requeue");
    for args in [&["add", "--store", "./q"][..], &["run", "true"]] {
        let ran = std::process::Command::new("sh")
            .args(["-c", &format!("ulimit -v 1000000; {zero}"), requeue])
            .args(args)
            .current_dir(store.dir.path("."))
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains("line 1 is longer than 131072 bytes"), "{err}");
    }
}

#[test]
fn overlong_line_is_refused_with_its_number() {
    let dir = Dir::new();
    let long = "x".repeat(131_073);
    let fits = "y".repeat(131_072);
    let add =
        |lines: String| dir.requeue().args(["add", "--store", "q"]).stdin(lines).ran();
    let ran = add(format!("a\n\nb\n{long}\nc\n")).expect(2);
    assert!(ran.err.contains("line 4 is longer than 131072 bytes"), "{}", ran.err);
    assert!(ran.err.contains("after adding 2 keys"), "{}", ran.err);
    let ran = add(format!("{fits}\n")).expect(2);
    assert!(ran.err.contains("rejected line"), "too long for a store only: {}", ran.err);
}

/// A log was once read into memory as a whole.
#[test]
fn log_to_resume_from_is_read_as_a_stream() {
    let dir = Dir::new();
    dir.fifo("go");
    let event = |number: u32, event: &str, more: &str| {
        format!("{{\"event\":\"{event}\",\"key\":\"key-{number}\"{more}}}\n")
    };
    let mut log = String::new();
    for round in 0..400_000 {
        let key = round % 1000;
        log += &event(key, "started", ",\"pid\":1,\"text\":\"xxxxxxxxxxxxxxxxxxxxxxxx\"");
        log += &event(key, "finished", ",\"code\":0");
    }
    let size = log.len() as u64;
    dir.write("log", log);
    let mut live = dir.run(["--resume", "log", "--shell", "cat go #"]).start();
    live.send("key-999");
    live.send("new");
    live.end_input();
    live.wait_for_status("running 1/");
    let memory = live.peak_memory();
    dir.release("go");
    let ran = live.wait().expect(0);
    assert!(ran.err.contains("skipped 1 key"), "{}", ran.err);
    assert!(memory < size / 2 && memory < 40_000_000, "{memory} bytes for {size}");
}
