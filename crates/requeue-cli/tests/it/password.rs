//! Passwords in addresses never appear in output.

use crate::harness::Dir;
use crate::test_store::{TestStore, VERBS, on_each_server, queue_name, server};

/// PGPASSWORD was once ignored, unlike by the programs of PostgreSQL.
#[test]
fn password_can_be_in_the_environment() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let (user, host) = url.rsplit_once('@').expect("a server with a password");
    let (user, password) = user.rsplit_once(':').unwrap();
    let store = TestStore::on(&format!("{user}@{host}"), Some(&queue_name()));
    store.requeue().args(["add", "k"]).env("PGPASSWORD", password).ran().expect(0);
    let ran = store.requeue().args(["add", "k"]).ran().expect(2);
    assert!(ran.err.contains("requires a password"), "{}", ran.err);
}

/// Returns whether a text contains any three consecutive characters of a password.
fn leaks(password: &str, text: &str) -> bool {
    let letters: Vec<_> = password.chars().collect();
    letters.windows(3).any(|part| text.contains(&part.iter().collect::<String>()))
}

/// The part after the first @ of a password was once reported as an unreachable host.
#[test]
fn no_part_of_an_unusual_password_is_printed() {
    let schemes =
        ["redis", "rediss", "redis-cluster", "rediss-cluster", "postgres", "Postgresql"];
    let dir = Dir::new();
    for odd in "@:/?#%[]&=+ ,'\"\\".chars() {
        for password in [format!("Qj{odd}Xv9{odd}Zk{odd}"), format!("739{odd}518")] {
            let with_scheme = schemes.iter().flat_map(|scheme| {
                let query = format!("user=me&password={password}");
                [
                    format!("{scheme}://me:{password}@127.0.0.1:1/0"),
                    format!("{scheme}://127.0.0.1:1/0?{query}"),
                ]
            });
            let without = [
                format!("me:{password}@127.0.0.1:1"),
                format!("host=127.0.0.1 port=1 user=me password={password}"),
            ];
            for address in with_scheme.chain(without) {
                let status = dir.requeue().arg("status").env("REQUEUE_STORE", &address);
                let ran = status.ran().expect(2);
                assert!(!leaks(&password, &ran.err), "{address}: {}", ran.err);
            }
        }
    }
}

/// A usage error once repeated the address.
#[test]
fn usage_errors_mask_passwords() {
    let url = "redis://me:secret@127.0.0.1:1";
    for words in [&["status", url][..], &["dead", url], &["status", "--limit", url]] {
        let ran = Dir::new().requeue().args(words).ran().expect(2);
        assert!(ran.err.contains("redis://***"), "{}", ran.err);
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
}

#[test]
fn wrong_password_is_not_printed() {
    for variable in ["REQUEUE_REDIS_URL", "REQUEUE_POSTGRES_URL"] {
        let Some(url) = server(variable) else { continue };
        let (scheme, rest) = url.split_once("://").unwrap();
        let host = rest.rsplit('@').next().unwrap();
        let wrong = format!("{scheme}://other:secret@{host}");
        let ran = Dir::new().requeue().arg("status").env("REQUEUE_STORE", &wrong).ran();
        let ran = ran.expect(2);
        assert!(ran.err.starts_with("requeue: cannot open the store: "), "{}", ran.err);
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
}

#[test]
fn help_names_the_variables_but_not_their_values() {
    for verb in VERBS {
        let ran = Dir::new()
            .requeue()
            .args(verb.iter().take_while(|word| **word != "true" && **word != "k"))
            .arg("--help")
            .env("REQUEUE_STORE", "redis://me:secret@host")
            .env("REQUEUE_QUEUE", "hidden-name")
            .ran()
            .expect(0);
        assert!(ran.out.contains("REQUEUE_STORE"), "{verb:?}: {}", ran.out);
        assert!(!ran.out.contains("secret"), "{}", ran.out);
    }
}

#[test]
fn log_and_output_do_not_contain_the_address() {
    on_each_server(|store| {
        let ran = store.run(&["--log", "log", "echo", ":::", "k"]).ran().expect(0);
        let all = ran.out + &ran.err + &store.dir.read("log");
        assert!(!all.contains("://"), "{all}");
    });
}

#[test]
fn typed_password_is_hidden_from_other_users() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let (user, _) = url.rsplit_once('@').expect("a server with a password");
    let (_, password) = user.rsplit_once(':').unwrap();
    let dir = Dir::new();
    let queue = format!("typed-{}", std::process::id());
    let flags = ["--worker", "--queue", &queue, "--store", &url, "--shell"];
    let script = "echo store=$REQUEUE_STORE {}";
    let mut live = dir.run(flags).arg(script).start();
    live.err_line("working on ");
    let shown = std::fs::read_to_string(format!("/proc/{}/cmdline", live.pid())).unwrap();
    assert!(shown.contains("--worker") && !shown.contains(password), "{shown}");
    dir.requeue().args(["add", "--queue", &queue, "--store", &url, "k"]).ran().expect(0);
    assert_eq!(live.out_line(), "store= k");
    live.signal("TERM");
    live.wait().expect(0);
}

/// Such an address once created a directory with the password in its name.
#[test]
fn address_without_a_scheme_creates_no_directory() {
    for store in
        ["host=127.0.0.1 user=x password=hunter2 dbname=q", "user:hunter2@host:5432"]
    {
        for verb in [&["add", "k"][..], &["run", "true"]] {
            let dir = Dir::new();
            let ran =
                dir.requeue().args(verb).env("REQUEUE_STORE", store).ran().expect(2);
            assert!(ran.err.contains("postgres://") && !ran.err.contains("hunter2"));
            let created = std::fs::read_dir(dir.path(".")).unwrap().count();
            assert_eq!(created, 0, "{store}");
        }
    }
}
