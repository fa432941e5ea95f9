//! Servers that are unreachable, reject a user, or close connections.

use std::error::Error as _;
use std::time::Duration;

use requeue_postgres::PostgresStore;
use requeue_store::{Error, ErrorKind, RepliesExt, Store};

use crate::tools::{
    Bench, add, block_on, connect, done, key, lease, new_name, pid, run, url,
};

/// Returns an error with all its causes.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

async fn refused(url: &str) -> Error {
    PostgresStore::builder(url).open().await.expect_err("it must not open")
}

/// Returns the password, the host with its port, and the database of an address.
fn parts(url: &str) -> (&str, &str, &str) {
    let rest = url.strip_prefix("postgres://requeue:").expect("the user is requeue");
    let (password, rest) = rest.split_once('@').expect("the address has a password");
    let (host, database) = rest.split_once('/').expect("the address has a database");
    (password, host, database)
}

#[test]
fn wrong_password_is_denied_and_not_printed() {
    let Some(url) = url() else { return };
    let (_, host, database) = parts(&url);
    let wrong = format!("postgres://requeue:hunter2@{host}/{database}");
    let error = block_on(refused(&wrong));
    assert_eq!(error.kind(), ErrorKind::Denied);
    let text = chain(&error);
    assert!(text.contains(host) && !text.contains("hunter2"), "{text}");
}

#[test]
fn missing_password_is_denied() {
    let Some(url) = url() else { return };
    let (_, host, database) = parts(&url);
    let error = block_on(refused(&format!("postgres://requeue@{host}/{database}")));
    assert_eq!(error.kind(), ErrorKind::Denied);
}

/// The password file was not read.
#[test]
fn password_comes_from_the_password_file_unless_others_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let Some(url) = url() else { return };
    let (password, host, database) = parts(&url);
    let path = std::env::temp_dir().join(new_name());
    std::fs::write(&path, format!("{host}:{database}:requeue:{password}\n")).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let address =
        format!("postgres://requeue@{host}/{database}?passfile={}", path.display());
    mode(0o644);
    let error = block_on(refused(&address));
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("chmod 600"), "{error}");
    mode(0o600);
    block_on(PostgresStore::builder(address).open()).unwrap();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn unknown_database_is_named() {
    let Some(url) = url() else { return };
    let (password, host, _) = parts(&url);
    let error =
        block_on(refused(&format!("postgres://requeue:{password}@{host}/nowhere")));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = chain(&error);
    assert!(text.contains("no database \"nowhere\""), "{text}");
    assert!(!text.contains(password), "{text}");
}

#[test]
fn unreachable_server_is_unavailable() {
    // Only the superuser can listen on port 1.
    let error = block_on(refused("postgres://requeue:hunter2@127.0.0.1:1/requeue"));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.to_string(), "cannot reach PostgreSQL at 127.0.0.1:1/requeue");
    assert!(!chain(&error).contains("hunter2"));
}

#[test]
fn silent_server_is_unavailable() {
    block_on(async {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let url = format!("postgres://requeue@127.0.0.1:{port}/requeue");
        let builder = PostgresStore::builder(url).timeout(Duration::from_millis(50));
        assert_eq!(builder.open().await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

/// Closes all connections of the store, as a restart or a failover does.
async fn end_connections(bench: &Bench, name: &str) {
    let text = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where application_name = $1";
    bench.client.query_one(text, &[&name]).await.expect("the connections are ended");
    let gone = "select count(*) from pg_stat_activity where application_name = $1";
    let count = async || {
        let row = bench.client.query_one(gone, &[&name]).await;
        row.expect("the connections are counted").get::<_, i64>(0)
    };
    while count().await > 0 {
        tokio::task::yield_now().await;
    }
}

async fn open_named(bench: &Bench, name: &str) -> PostgresStore {
    let url = format!("{}?application_name={name}", bench.url);
    PostgresStore::builder(url).queue(&*bench.queue).open().await.expect("it opens")
}

#[test]
fn call_on_a_closed_connection_is_unknown_and_the_next_one_works() {
    run(|bench| async move {
        let name = new_name();
        let store = open_named(&bench, &name).await;
        store.add(&[add("a")]).all().await.unwrap();
        let mut blocker = connect(&bench.url).await;
        let transaction = blocker.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();

        let ended = async || {
            let adding = store.clone();
            let call = tokio::spawn(async move { adding.add(&[add("a")]).all().await });
            bench.until_blocked_by(holder).await;
            end_connections(&bench, &name).await;
            call.await.unwrap().unwrap_err().kind()
        };
        // On a slow machine the call may time out before that.
        let mut kind = ended().await;
        while kind == ErrorKind::Busy {
            kind = ended().await;
        }
        assert_eq!(kind, ErrorKind::Unknown);
        transaction.rollback().await.unwrap();

        store.add(&[add("b")]).all().await.unwrap();
        assert_eq!(lease(&store, 9).await.len(), 2);
    });
}

#[test]
fn read_only_calls_survive_closed_idle_connections() {
    run(|bench| async move {
        let name = new_name();
        let store = open_named(&bench, &name).await;
        store.add(&[add("a")]).all().await.unwrap();
        for _ in 0..5 {
            end_connections(&bench, &name).await;
            assert_eq!(store.stats().await.unwrap().ready, 1);
        }
    });
}

#[test]
fn waiter_is_woken_by_another_store_after_its_connections_were_closed() {
    run(|bench| async move {
        let name = new_name();
        let store = open_named(&bench, &name).await;
        for round in ["a", "b", "c"] {
            let waiter = store.clone();
            let waiting = tokio::spawn(async move {
                loop {
                    let grants = waiter.lease(&crate::tools::request(1)).await;
                    let grants = grants.map(|leased| leased.grants).unwrap_or_default();
                    if let Some(grant) = grants.into_iter().next() {
                        return grant;
                    }
                    waiter.wait(crate::tools::PATIENCE).await.unwrap();
                }
            });
            bench.store.add(&[add(round)]).all().await.unwrap();
            let grant = waiting.await.unwrap();
            assert_eq!(grant.key, key(round));
            bench.store.finish(&[done(&grant)]).all().await.unwrap();
            end_connections(&bench, &name).await;
        }
    });
}

#[test]
fn unrelated_open_transaction_blocks_nothing() {
    run(|bench| async move {
        let mut elsewhere = connect(&bench.url).await;
        let level = tokio_postgres::IsolationLevel::RepeatableRead;
        let transaction =
            elsewhere.build_transaction().isolation_level(level).start().await.unwrap();
        let count = "select count(*) from requeue.item";
        transaction.query_one(count, &[]).await.unwrap();
        for round in 0..30 {
            let names: Vec<_> = (0..20).map(|n| format!("{round}-{n}")).collect();
            let adds: Vec<_> = names.iter().map(|name| add(name)).collect();
            bench.store.add(&adds).all().await.unwrap();
            let grants = lease(&bench.store, 20).await;
            let order: Vec<_> =
                grants.iter().map(|grant| grant.key.to_string()).collect();
            assert_eq!(order, names);
            let ends: Vec<_> = grants.iter().map(done).collect();
            bench.store.finish(&ends).all().await.unwrap();
        }
        transaction.commit().await.unwrap();
        assert_eq!(bench.store.stats().await.unwrap().ready, 0);
    });
}

#[test]
fn user_without_permissions_is_denied() {
    run(|bench| async move {
        let user = new_name();
        let create = format!("create role {user} login password 'opensesame'");
        bench.client.batch_execute(&create).await.unwrap();
        let (_, host, database) = parts(&bench.url);
        let error =
            refused(&format!("postgres://{user}:opensesame@{host}/{database}")).await;
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(!chain(&error).contains("opensesame"));
        bench.client.batch_execute(&format!("drop role {user}")).await.unwrap();
    });
}
