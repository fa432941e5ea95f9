//! Help, manual pages, completions and usage errors.

use crate::harness::Dir;

#[test]
fn usage_errors_show_flag_value_and_accepted_values() {
    for (flag, value, accepted) in [
        ("--timeout", "5x", "200ms, 5s, 1m30s"),
        ("--timeout", "0", "a duration above 0"),
        ("--kill-after", "-", "200ms, 5s, 1m30s"),
        ("--rate", "0", "a number above 0"),
        ("--retry-rate", "inf", "600/m"),
        ("--backoff", "5m..1s", "200ms..5m"),
        ("--max-retries", "many", "0 for none, or unlimited"),
        ("--retry-on", "256", "0 to 255"),
        ("--no-retry-on", "x", "0 to 255"),
        ("--debounce", "soon", "200ms"),
        ("--metrics", "host", "127.0.0.1:9090"),
        ("--workers", "0", "a whole number above 0"),
        ("--workers", "two", "a whole number above 0"),
        ("--max-failures", "0", "a percentage such as 20%"),
        ("--max-queued", "0", "a whole number above 0"),
        ("--burst", "0", "a whole number above 0"),
        ("--retry-burst", "0", "a whole number above 0"),
        ("--priority-field", "0", "a whole number above 0"),
        ("--jitter", "some", "full, equal"),
        ("--progress", "much", "auto, bar, line, none"),
        ("--fair-by", "(a", "a regular expression"),
    ] {
        let joined = format!("{flag}={value}");
        let ran = Dir::new().run([&joined, "true"]).ran().expect(2);
        for part in [flag, &format!("'{value}'"), accepted] {
            assert!(ran.err.contains(part), "{joined}: no {part:?} in {}", ran.err);
        }
    }
}

/// These once failed with a message about `--`, or ran `full` as the command.
#[test]
fn usage_errors_say_what_to_type() {
    for (args, hint) in [
        (&["run", "-j", "-1", "true"][..], "invalid value '-1' for '--workers <N>'"),
        (&["run", "-I%", "echo", "%"], "{} is replaced without a flag"),
        (&["run", "--jitter", "some", "true"], "[possible values: none, full, equal]"),
        (&["list"], "requeue dead list"),
        (&["rm", "k"], "requeue dead drop"),
        (&["run", "--halt", "soon,fail=1", "true"], "--max-failures"),
    ] {
        let ran = Dir::new().requeue().args(args).ran().expect(2);
        assert!(ran.err.contains(hint), "{args:?}: {}", ran.err);
    }
    let ran = Dir::new().run(["--jitter", "full", "echo", ":::", "k"]).ran().expect(0);
    assert_eq!(ran.out, "k\n");
}

#[test]
fn conflicting_flags_are_rejected() {
    for flags in [
        ["--priority-field=1", "--fair-by=/"],
        ["--priority-field=1", "--debounce=1s"],
        ["--line-buffer", "--quiet-success"],
        ["--line-buffer", "--output=x"],
        ["--tag", "--output=x"],
    ] {
        let ran = Dir::new().run(flags).arg("true").ran().expect(2);
        assert!(ran.err.contains("cannot be used with"), "{flags:?}: {}", ran.err);
    }
}

/// Without --store, these flags were once ignored silently. The variable `REQUEUE_QUEUE` is not
/// an error.
#[test]
fn store_flags_require_a_store() {
    for flag in [
        "--queue=mail",
        "--partitions=4",
        "--lease=1m",
        "--max-deliveries=2",
        "--revive-after=1s",
    ] {
        let ran = Dir::new().run([flag, "true"]).stdin("a\n").ran().expect(2);
        assert!(ran.err.contains("--store <ADDRESS>"), "{flag}: {}", ran.err);
    }
    let dir = Dir::new();
    let plain = dir.run(["echo"]).env("REQUEUE_QUEUE", "mail").stdin("a\n");
    assert_eq!(plain.ran().expect(0).out, "a\n");
}

#[test]
fn run_requires_a_command() {
    for args in [&["run"][..], &["run", "--"], &["run", "--", ":::", "a"], &[]] {
        let ran = Dir::new().requeue().args(args).ran().expect(2);
        assert_ne!(ran.err, "", "{args:?}");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let ran = Dir::new().run(["--help"]).ran().expect(0);
    for part in [
        "Examples:",
        "inotifywait",
        "Exit codes:",
        "127",
        "Signals:",
        "REQUEUE_SLOT",
        "key_hex",
    ] {
        assert!(ran.out.contains(part), "{part}");
    }
}

#[test]
fn manual_pages_are_valid_roff() {
    for (args, part) in [
        (&["man"][..], "requeue"),
        (&["man", "run"], "\\-\\-max\\-retries"),
        (&["man", "run"], ".SH NOTES\n.ad l\n.nh\nExamples:"),
        (&["man", "add"], "\\-\\-after"),
        (&["man", "status"], "\\-\\-json"),
        (&["man", "watch"], "\\-\\-interval"),
        (&["man", "dead"], "revive"),
        (&["man", "migrate"], "\\-\\-dry\\-run"),
    ] {
        let ran = Dir::new().requeue().args(args).ran().expect(0);
        assert!(ran.out.contains(".TH requeue") && ran.out.contains(part), "{args:?}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = Dir::new().requeue().args(["completions", shell]).ran().expect(0);
        for word in ["max-retries", "status", "watch", "revive", "interval"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn broken_pipe_is_not_an_error() {
    let dir = Dir::new();
    let requeue = env!("CARGO_BIN_EXE_requeue");
    let script = format!(
        "{requeue} completions zsh | head -n1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    );
    let ran = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    drop(dir);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0\n");
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
}

/// The README starts with `cargo run`, which broke when the workspace got a second program.
#[test]
fn workspace_has_one_default_program() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let default = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages
        .filter(|package| default.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().unwrap());
    let programs: Vec<_> = targets
        .filter(|target| target["kind"][0] == "bin")
        .map(|target| &target["name"])
        .collect();
    assert_eq!(programs, ["requeue"]);
}

#[test]
fn version_is_printed() {
    let ran = Dir::new().requeue().arg("--version").ran().expect(0);
    assert_eq!(ran.out, format!("requeue {}\n", env!("CARGO_PKG_VERSION")));
}
