//! What cannot be opened, used or typed, and that no password is told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use crate::harness::{Dir, Live};
use crate::proxy::Proxy;
use crate::stores::{Home, embedded, on_each_server, on_each_store, queue_name, server};

const VERBS: [&[&str]; 9] = [
    &["run", "true"],
    &["add", "k"],
    &["status"],
    &["watch"],
    &["dead", "list"],
    &["dead", "drop", "--all"],
    &["forget", "k"],
    &["pause"],
    &["resume"],
];

/// An add waits for the server: see below.
#[test]
fn every_verb_says_which_server_it_could_not_reach() {
    for verb in VERBS.into_iter().filter(|verb| verb[0] != "add") {
        for url in [
            "redis://me:secret@127.0.0.1:1",
            "rediss://me:secret@127.0.0.1:1",
            "postgres://me:secret@127.0.0.1:1/db",
        ] {
            let ran = Dir::new().requeue().args(verb).env("REQUEUE_STORE", url).ran();
            let ran = ran.expect(2);
            assert!(
                ran.err.starts_with("requeue: cannot open the store: "),
                "{}",
                ran.err
            );
            assert!(ran.err.contains("127.0.0.1:1"), "{}", ran.err);
            assert!(!ran.err.contains("secret"), "{}", ran.err);
        }
    }
}

/// A worker that was started with the machine failed before its server was ready.
#[test]
fn workers_and_adds_wait_a_while_for_a_server_that_starts() {
    on_each_server(|home| {
        for (verb, done) in
            [(&["run", "--worker", "echo"][..], "working on "), (&["add", "k"], "1 key")]
        {
            let (proxy, early) = home.through_proxy();
            proxy.cut();
            let mut live = early.args(verb).start();
            live.err_line("; it is tried again for 10.0s");
            proxy.mend();
            live.err_line(done);
            if verb[0] == "run" {
                live.signal("TERM");
            }
            let ran = live.ended().expect(0);
            assert!(!ran.err.contains("tried again"), "{}", ran.err);
        }
    });
}

/// The same line came again and again.
#[test]
fn whoever_watches_is_told_once_that_the_store_is_away_and_when_it_is_back() {
    on_each_server(|home| {
        home.make();
        let (proxy, away) = home.through_proxy();
        let watch = ["watch", "--interval", "100ms", "--json"];
        let mut live = away.args(watch).start();
        live.out_line();
        proxy.cut();
        live.err_line("no answer, tried again");
        proxy.until_refused(3);
        proxy.mend();
        let next = live.err_line("");
        assert!(next.contains("the store is back"), "{next}");
        live.signal_now("INT");
        live.ended().expect(0);
    });
}

/// The password of the environment was not looked at, and PostgreSQL's own programs do.
#[test]
fn a_password_may_be_in_the_environment() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let (user, host) = url.rsplit_once('@').expect("a server that wants a password");
    let (user, password) = user.rsplit_once(':').unwrap();
    let home = Home::on(&format!("{user}@{host}"), Some(&queue_name()));
    home.requeue().args(["add", "k"]).env("PGPASSWORD", password).ran().expect(0);
    let ran = home.requeue().args(["add", "k"]).ran().expect(2);
    assert!(ran.err.contains("asks for a password"), "{}", ran.err);
}

/// Whether any three characters of a password that follow each other are in a text.
fn tells_of(password: &str, text: &str) -> bool {
    let letters: Vec<_> = password.chars().collect();
    letters.windows(3).any(|part| text.contains(&part.iter().collect::<String>()))
}

/// What came after the first @ of a password was told as the host that cannot be reached.
#[test]
fn no_part_of_an_odd_password_is_told() {
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
            for place in with_scheme.chain(without) {
                let asked = dir.requeue().arg("status").env("REQUEUE_STORE", &place);
                let ran = asked.ran().expect(2);
                assert!(!tells_of(&password, &ran.err), "{place}: {}", ran.err);
            }
        }
    }
}

/// A word in the wrong place was repeated.
#[test]
fn a_complaint_about_what_was_typed_tells_no_password() {
    let url = "redis://me:secret@127.0.0.1:1";
    for words in [&["status", url][..], &["dead", url], &["status", "--limit", url]] {
        let ran = Dir::new().requeue().args(words).ran().expect(2);
        assert!(ran.err.contains("redis://***"), "{}", ran.err);
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
}

/// A folder was made that had the password in its name.
#[test]
fn an_address_without_a_scheme_makes_no_folder() {
    for store in
        ["host=127.0.0.1 user=x password=hunter2 dbname=q", "user:hunter2@host:5432"]
    {
        for verb in [&["add", "k"][..], &["run", "true"]] {
            let dir = Dir::new();
            let ran =
                dir.requeue().args(verb).env("REQUEUE_STORE", store).ran().expect(2);
            assert!(ran.err.contains("postgres://") && !ran.err.contains("hunter2"));
            let made = std::fs::read_dir(dir.path(".")).unwrap().count();
            assert_eq!(made, 0, "{store}");
        }
    }
}

/// Signals were caught before the store was open, and heeded after.
#[test]
fn a_signal_ends_a_run_that_waits_for_its_store_to_open() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for scheme in ["redis", "postgres"] {
        let url = format!("{scheme}://me@{}/0", silent.local_addr().unwrap());
        let live = Dir::new().run(["--store", &url, "true"]).start();
        let asked = silent.accept().unwrap();
        live.signal_now("TERM");
        assert_eq!(live.ended().code, None, "ended by the signal");
        drop(asked);
    }
}

#[test]
fn an_unknown_scheme_is_refused_with_the_known_ones() {
    for url in ["mysql://me:secret@host/db", "http://x", "://"] {
        let ran = Dir::new().requeue().args(["status", "--store", url]).ran().expect(2);
        assert!(ran.err.contains("unknown scheme"), "{}", ran.err);
        for scheme in ["redis://", "postgres://", "postgresql://"] {
            assert!(ran.err.contains(scheme), "{}", ran.err);
        }
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
    let ran = Dir::new().requeue().args(["status", "--store", ""]).ran().expect(2);
    assert!(ran.err.contains("--store is empty"), "{}", ran.err);
}

#[test]
fn a_wrong_password_is_refused_without_telling_it() {
    for variable in ["REQUEUE_REDIS_URL", "REQUEUE_POSTGRES_URL"] {
        let Some(url) = server(variable) else { continue };
        let (scheme, rest) = url.split_once("://").unwrap();
        let host = rest.rsplit('@').next().unwrap();
        let wrong = format!("{scheme}://nobody:secret@{host}");
        let ran = Dir::new().requeue().arg("status").env("REQUEUE_STORE", &wrong).ran();
        let ran = ran.expect(2);
        assert!(ran.err.starts_with("requeue: cannot open the store: "), "{}", ran.err);
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
}

#[test]
fn a_verb_needs_a_store() {
    for verb in &VERBS[1..] {
        let ran = Dir::new().requeue().args(*verb).ran().expect(2);
        assert!(ran.err.contains("--store"), "{verb:?}: {}", ran.err);
    }
    let ran = Dir::new().run(["--worker", "true"]).ran().expect(2);
    assert!(ran.err.contains("--worker needs --store"), "{}", ran.err);
}

#[test]
fn a_second_process_on_an_embedded_store_is_refused() {
    let home = embedded();
    let mut live = home.run(&["--worker", "echo"]).start();
    live.err_line("working on ");
    let ran = home.requeue().arg("status").ran().expect(2);
    assert!(ran.err.starts_with("requeue: cannot open the store: "), "{}", ran.err);
    assert!(ran.err.contains("queue.db"), "{}", ran.err);
    live.signal("TERM");
    live.ended().expect(0);
    home.requeue().arg("status").ran().expect(0);
}

/// A mistyped folder was made, and a queue in it that had nothing to tell; on Redis, one
/// whose number of partitions was fixed for ever.
#[test]
fn whoever_does_not_add_makes_no_queue() {
    on_each_store(|home| {
        for verb in &VERBS[2..] {
            let ran = home.requeue().args(*verb).ran().expect(2);
            assert!(ran.err.contains("no queue "), "{verb:?}: {}", ran.err);
        }
        assert!(!home.dir.path("queue.db").exists());
        home.add(&["k"]);
        assert_eq!(home.status()["ready"], 1);
    });
}

/// In a database of its own: nobody has made the tables there.
#[test]
fn whoever_does_not_add_makes_no_tables() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let name = queue_name().replace('-', "_");
    query(&url, &format!("create database {name}"));
    let own = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
    let ran = Home::on(&own, None).requeue().arg("pause").ran().expect(2);
    assert!(ran.err.contains("no queue default on PostgreSQL at "), "{}", ran.err);
    query(&own, "create schema requeue");
    query(&url, &format!("drop database {name} with (force)"));
}

#[test]
fn what_is_no_store_is_refused() {
    let home = embedded();
    home.dir.write("queue.db", "a file");
    let ran = home.requeue().arg("status").ran().expect(2);
    assert!(ran.err.contains("queue.db"), "{}", ran.err);
    assert_eq!(home.dir.read("queue.db"), "a file");
}

#[test]
fn a_folder_has_one_queue_and_no_partitions() {
    for (flag, value) in [("--queue", "mail"), ("--partitions", "4")] {
        let args = ["status", "--store", "./q", flag, value];
        let ran = Dir::new().requeue().args(args).ran().expect(2);
        assert!(ran.err.contains(flag) && ran.err.contains("./q"), "{}", ran.err);
    }
    let args = ["status", "--store", "postgres://h/d", "--partitions", "4"];
    let ran = Dir::new().requeue().args(args).ran().expect(2);
    assert!(ran.err.contains("--partitions"), "{}", ran.err);
}

#[test]
fn a_queue_of_other_partitions_is_refused() {
    let Some(url) = server("REQUEUE_REDIS_URL") else { return };
    let name = format!("parts-{}", std::process::id());
    let dir = Dir::new();
    let verb = |partitions: &str, verb: &[&str]| {
        let command = dir.requeue().env("REQUEUE_STORE", &url).args(verb);
        command.args(["--queue", &name, "--partitions", partitions]).ran()
    };
    verb("2", &["add", "k"]).expect(0);
    let ran = verb("1025", &["add", "k"]).expect(2);
    assert!(ran.err.contains("the most are 1024"), "{}", ran.err);
    let ran = verb("3", &["status"]).expect(2);
    assert!(ran.err.contains('2') && ran.err.contains('3'), "{}", ran.err);
    assert!(ran.err.contains("partition"), "{}", ran.err);
    let status = verb("2", &["status", "--json"]).expect(0).out;
    assert!(status.contains("\"ready\":1"), "{status}");
    let without =
        dir.requeue().env("REQUEUE_STORE", &url).args(["status", "--queue", &name]);
    without.ran().expect(0);
}

/// A later program has changed the queue: this one must not touch it, and it is whole
/// when the right one comes.
fn is_refused_while_later(home: &Home, raise: impl Fn(i32)) {
    home.requeue().args(["add", "k"]).ran().expect(0);
    raise(1000);
    for verb in [&["status"] as &[&str], &["add", "l"], &["run", "--worker", "true"]] {
        let ran = home.requeue().args(verb).ran().expect(2);
        assert!(ran.err.starts_with("requeue: cannot open the store: "), "{}", ran.err);
        assert!(ran.err.contains("version 100"), "{}", ran.err);
    }
    raise(-1000);
    let status = home.requeue().args(["status", "--json"]).ran().expect(0).out;
    assert!(status.contains("\"ready\":1"), "{status}");
}

#[test]
fn a_queue_of_a_later_version_on_redis_is_refused() {
    let Some(url) = server("REQUEUE_REDIS_URL") else { return };
    let queue = queue_name();
    is_refused_while_later(&Home::on(&url, Some(&queue)), |by| {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let mut redis = TcpStream::connect(address).unwrap();
        write!(redis, "HINCRBY rq:{{{queue}:0}}:m version {by}\r\n").unwrap();
        let mut answer = String::new();
        BufReader::new(redis).read_line(&mut answer).unwrap();
        assert!(answer.starts_with(':'), "{answer}");
    });
}

/// In a database of its own: the version is one for all queues.
#[test]
fn a_schema_of_a_later_version_on_postgres_is_refused() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let name = queue_name().replace('-', "_");
    query(&url, &format!("create database {name}"));
    let own = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
    is_refused_while_later(&Home::on(&own, None), |by| {
        query(&own, &format!("update requeue.migration set version = version + {by}"));
    });
    query(&url, &format!("drop database {name} with (force)"));
}

fn query(url: &str, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(statement).await.unwrap();
    });
}

#[test]
fn a_key_that_is_too_long_is_left_out_and_the_others_are_not() {
    on_each_store(|home| {
        let long = "x".repeat(2000);
        let keys = format!("a\n{long}\nb\n");
        let ran = home.requeue().arg("add").stdin(keys).ran().expect(2);
        let told = "line left out, the key has 2000 bytes; the most are 1024: xxxx";
        assert!(ran.err.contains(told), "{}", ran.err);
        assert!(ran.err.contains("2 keys: 2 added"), "{}", ran.err);
        let other = format!("c\n{long}\n");
        let ran = home.run(&["echo"]).stdin(other.clone()).ran().expect(2);
        assert_eq!(ran.sorted(), ["a", "b", "c"]);
        assert!(ran.err.contains(told), "{}", ran.err);
        let fails = ["--max-retries=0", "--progress=none", "false"];
        home.run(&fails).stdin(other).ran().expect(1);
        home.requeue().args(["forget", &long]).ran().expect(2);
    });
}

#[test]
fn what_a_store_cannot_do_is_refused_with_the_reason() {
    for (flag, why) in [
        ("--fair-by=/", "but no groups"),
        ("--debounce=1s", "the earliest time"),
        ("--jitter", "without chance"),
        ("--resume=log", "knows by itself"),
    ] {
        let ran = embedded().run(&[flag, "true"]).ran().expect(2);
        let name = flag.split('=').next().unwrap();
        let told = format!("{name} cannot be used with --store");
        assert!(ran.err.contains(&told) && ran.err.contains(why), "{}", ran.err);
    }
    let ran = embedded().run(&["--worker", "true", ":::", "k"]).ran().expect(2);
    assert!(ran.err.contains("--worker reads no keys"), "{}", ran.err);
    for value in ["--lease=1ms", "--lease=x"] {
        let ran = embedded().run(&[value, "true"]).ran().expect(2);
        assert!(ran.err.contains("at least 100ms"), "{}", ran.err);
    }
}

#[test]
fn help_tells_of_the_environment_but_not_what_is_in_it() {
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
fn the_log_and_the_output_do_not_tell_where_the_store_is_reached_by() {
    on_each_server(|home| {
        let ran = home.run(&["--log", "log", "echo", ":::", "k"]).ran().expect(0);
        let told = ran.out + &ran.err + &home.dir.read("log");
        assert!(!told.contains("://"), "{told}");
    });
}

#[test]
fn a_password_that_was_typed_cannot_be_read_by_others() {
    let Some(url) = server("REQUEUE_POSTGRES_URL") else { return };
    let (user, _) = url.rsplit_once('@').expect("a server that wants a password");
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
    live.ended().expect(0);
}

/// A worker whose store goes away while it works on a key, and that has done with it.
fn cut_off_at_work(home: &Home) -> (Proxy, Live) {
    let (proxy, away) = home.through_proxy();
    home.dir.pipes();
    home.add(&["k"]);
    let script = "echo $$ > pid; cat go > /dev/null; echo {}";
    let mut live = away.args(["run", "--worker", "--shell", script]).start();
    home.dir.hear("pid");
    proxy.cut();
    live.err_line("lost the store");
    home.dir.release("go");
    assert_eq!(live.out_line(), "k", "what runs goes on");
    (proxy, live)
}

#[test]
fn a_store_that_goes_away_is_told_once_and_when_it_is_back() {
    on_each_server(|home| {
        let (proxy, mut live) = cut_off_at_work(home);
        proxy.mend();
        live.err_line("the store is back after");
        live.wait_for_status("ready 0  running 0/");
        home.run(&["echo", "again"]).ran().expect(0);
        live.signal("TERM");
        let ran = live.ended().expect(0);
        assert!(ran.err.contains("1 run in") && !ran.err.contains("lost"), "{}", ran.err);
    });
}

#[test]
fn a_store_that_stays_away_does_not_keep_a_worker() {
    on_each_server(|home| {
        let (proxy, away) = home.through_proxy();
        let dir = &home.dir;
        dir.fifo("pid");
        home.add(&["k"]);
        let script = "echo $$ > pid; exec sleep 1000 #";
        let mut live = away.args(["run", "--worker", "--shell", script]).start();
        dir.hear("pid");
        proxy.cut();
        live.err_line("lost the store");
        live.signal("TERM");
        live.err_line("finishing");
        live.signal("TERM");
        live.ended().expect(143);
    });
}

/// Nothing was said if no command ran: who typed Ctrl-C did not see what to wait for.
#[test]
fn whoever_ends_a_run_is_told_that_the_store_is_waited_for() {
    on_each_server(|home| {
        let (_proxy, mut live) = cut_off_at_work(home);
        live.signal("TERM");
        live.err_line("waiting for the store to answer; once more ends without it");
        live.signal("TERM");
        let ran = live.ended().expect(143);
        let left = "at least 1 key left; the store did not answer";
        assert!(ran.err.contains(left), "{}", ran.err);
    });
}

#[test]
fn an_add_to_a_store_that_goes_away_tells_what_was_acknowledged() {
    on_each_server(|home| {
        home.make();
        let (proxy, away) = home.through_proxy();
        let mut live = away.arg("add").start();
        live.say("a");
        while home.status()["ready"] != 1 {}
        proxy.cut();
        live.say("b");
        let ran = live.ended().expect(2);
        assert!(
            ran.err.contains("the store failed; 1 key was acknowledged"),
            "{}",
            ran.err
        );
        assert_eq!(home.status()["ready"], 1);
    });
}
