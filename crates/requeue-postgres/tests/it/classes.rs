//! The kinds and classes of errors of a real server.

use requeue_postgres::PostgresStore;
use requeue_store::{Class, Error, ErrorKind, RepliesExt, Store};
use tokio_postgres::Client;

use crate::tools::{
    add, block_on, connect, key, lease, new_name, pid, request, run, url,
};

/// A store with a new user and a new schema.
struct Private {
    store: PostgresStore,
    client: Client,
    name: String,
    place: String,
}

impl Private {
    async fn open(url: &str) -> Self {
        let (name, client) = (new_name(), connect(url).await);
        let create = format!(
            "create role {name} login password 'first';
             grant create on database requeue to {name}"
        );
        client.batch_execute(&create).await.expect("the role is created");
        let (_, place) = url.split_once('@').expect("the address has a password");
        let address = format!("postgres://{name}:first@{place}?application_name={name}");
        let builder = PostgresStore::builder(address).schema(&*name);
        let store = builder.open().await.expect("the store opens");
        Self { store, client, name, place: place.to_owned() }
    }

    async fn run(&self, sql: &str) {
        let sql = sql.replace("NAME", &self.name);
        self.client.batch_execute(&sql).await.expect("the SQL runs");
    }

    /// Ends the connections of the store.
    async fn disconnect(&self) {
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
            where application_name = $1";
        let left = "select count(*) from pg_stat_activity where application_name = $1";
        self.client.query_one(end, &[&self.name]).await.expect("they are ended");
        let count = async || {
            let row = self.client.query_one(left, &[&self.name]).await;
            row.expect("they are counted").get::<_, i64>(0)
        };
        while count().await > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the error of the next call that reaches a new connection.
    async fn failure(&self) -> Error {
        loop {
            let error = self.store.stats().await.expect_err("the server refuses");
            if error.kind() != ErrorKind::Unknown {
                return error;
            }
        }
    }

    async fn end(self) {
        let name = self.name;
        drop(self.store);
        let text =
            format!("drop schema {name} cascade; drop owned by {name}; drop role {name}");
        self.client.batch_execute(&text).await.expect("everything is dropped");
    }
}

/// The sixth deadlock or serialization failure in a row closed the handle, and a full disk
/// was a server that cannot be reached.
#[test]
fn errors_of_the_server_have_the_documented_kind() {
    let Some(url) = url() else { return };
    block_on(async {
        let private = Private::open(&url).await;
        let table = [
            ("40001", ErrorKind::Busy, Class::RetryHere),
            ("40P01", ErrorKind::Busy, Class::RetryHere),
            ("55P03", ErrorKind::Busy, Class::RetryHere),
            ("57014", ErrorKind::Busy, Class::RetryHere),
            ("53100", ErrorKind::Full, Class::RetryHere),
            ("53200", ErrorKind::Full, Class::RetryHere),
            ("53300", ErrorKind::Unavailable, Class::RetryElsewhere),
            ("57P03", ErrorKind::Unavailable, Class::RetryElsewhere),
            ("25006", ErrorKind::ReadOnly, Class::RetryElsewhere),
            ("57P01", ErrorKind::Unknown, Class::RetryElsewhere),
            ("57P02", ErrorKind::Unknown, Class::RetryElsewhere),
            ("08006", ErrorKind::Unknown, Class::RetryElsewhere),
            ("28P01", ErrorKind::Denied, Class::RetryElsewhere),
            ("42501", ErrorKind::Denied, Class::RetryElsewhere),
            ("42883", ErrorKind::Corrupt, Class::GiveUp),
            ("XX000", ErrorKind::Server, Class::GiveUp),
        ];
        for (code, kind, class) in table {
            let fail = format!(
                "create or replace function
                 NAME.heartbeat(q integer, who text, clock bigint)
                 returns void language plpgsql as
                 $$ begin raise exception using errcode = '{code}'; end $$"
            );
            private.run(&fail).await;
            let error = private.store.heartbeat(&request(1).owner).await.unwrap_err();
            assert_eq!((error.kind(), error.class()), (kind, class), "{code}: {error}");
        }
        private.end().await;
    });
}

#[test]
fn too_many_connections_are_transient() {
    let Some(url) = url() else { return };
    block_on(async {
        let private = Private::open(&url).await;
        private.run("alter role NAME connection limit 0").await;
        private.disconnect().await;
        let error = private.failure().await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        private.run("alter role NAME connection limit 9").await;
        assert_eq!(private.store.stats().await.unwrap().dead, 0);
        private.end().await;
    });
}

#[test]
fn replaced_password_is_transient_on_an_open_store() {
    let Some(url) = url() else { return };
    block_on(async {
        let private = Private::open(&url).await;
        private.run("alter role NAME password 'second'").await;
        private.disconnect().await;
        let error = private.failure().await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.is_transient());
        private.run("alter role NAME password 'first'").await;
        assert_eq!(private.store.stats().await.unwrap().dead, 0);
        private.end().await;
    });
}

#[test]
fn replaced_password_is_found_in_the_password_file() {
    use std::os::unix::fs::PermissionsExt;
    let Some(url) = url() else { return };
    block_on(async {
        let private = Private::open(&url).await;
        let path = std::env::temp_dir().join(&private.name);
        let write = |password: &str| {
            std::fs::write(&path, format!("*:*:*:{}:{password}\n", private.name))
                .unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        };
        write("first");
        let (name, place) = (&private.name, &private.place);
        let file = path.display();
        let address =
            format!("postgres://{name}@{place}?passfile={file}&application_name={name}");
        let store = PostgresStore::builder(address).schema(&**name).open().await.unwrap();
        private.run("alter role NAME password 'second'").await;
        write("second");
        private.disconnect().await;
        assert_eq!(store.stats().await.unwrap().dead, 0);
        drop(store);
        std::fs::remove_file(path).unwrap();
        private.end().await;
    });
}

/// A store stayed on the connections of a server that had become read-only.
#[test]
fn read_only_server_is_left() {
    let Some(url) = url() else { return };
    block_on(async {
        let private = Private::open(&url).await;
        private.run("alter role NAME set default_transaction_read_only = on").await;
        private.disconnect().await;
        assert_eq!(private.store.stats().await.unwrap().ready, 0, "reading is possible");
        let error = private.store.add(&[add("a")]).all().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        private.run("alter role NAME reset default_transaction_read_only").await;
        private.store.add(&[add("a")]).all().await.unwrap();
        private.end().await;
    });
}

#[test]
fn cancelled_call_is_busy_and_changes_nothing() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let mut other = connect(&bench.url).await;
        let transaction = other.transaction().await.unwrap();
        let holder = pid(&transaction).await;
        bench.store.add_in(&transaction, &[add("a")]).await.unwrap();
        let store = bench.store.clone();
        let removing = tokio::spawn(async move { store.remove(&[key("a")]).await });
        let cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity
            where $1 = any (pg_blocking_pids(pid))";
        while !removing.is_finished() {
            bench.client.query_one(cancel, &[&holder]).await.unwrap();
        }
        let error = removing.await.unwrap().remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        transaction.commit().await.unwrap();
        assert_eq!(lease(&bench.store, 9).await.len(), 1);
    });
}

/// An open transaction whose client has vanished keeps its keys locked.
#[test]
fn idle_transaction_is_ended_by_the_server_and_its_keys_continue() {
    run(|bench| async move {
        bench.store.add(&[add("a")]).all().await.unwrap();
        let user = connect(&bench.url).await;
        let begin = "set idle_in_transaction_session_timeout = 200; begin";
        user.batch_execute(begin).await.unwrap();
        bench.store.add_in(&user, &[add("a")]).await.unwrap();
        while !user.is_closed() {
            tokio::task::yield_now().await;
        }
        assert_eq!(lease(&bench.store, 9).await[0].key, key("a"));
    });
}
