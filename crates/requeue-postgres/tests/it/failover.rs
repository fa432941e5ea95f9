//! A failover from a primary to its standby, both real servers of this test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use requeue_postgres::PostgresStore;
use requeue_store::{EngineClock, ErrorKind, RepliesExt, Store};
use tokio_postgres::{Client, NoTls};

use crate::tools::{add, block_on, done, lease, new_name};

/// A folder with the data of two servers, removed on drop.
struct Folder {
    path: PathBuf,
    /// The programs of PostgreSQL.
    programs: PathBuf,
}

impl Folder {
    /// Returns `None` without the programs of a server.
    fn create() -> Option<Self> {
        let programs = PathBuf::from(crate::tools::variable("POSTGRES_BIN")?);
        let path = std::env::temp_dir().join(new_name());
        std::fs::create_dir(&path).expect("the folder is created");
        if is_root() {
            let owned = Command::new("chown").arg("postgres:").arg(&path).status();
            assert!(owned.expect("chown runs").success());
        }
        Some(Self { path, programs })
    }

    /// Returns a command that runs as the user postgres: the server refuses to run as root.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(&self.path).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn run(&self, program: &str, args: &[&str]) {
        let status = self.command(program).args(args).status();
        assert!(status.expect("the program runs").success(), "{program} fails");
    }

    /// Starts a server, and waits until it answers.
    async fn start(&self, data: &str) -> Server {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = free.local_addr().expect("it has a port").port();
        drop(free);
        let mut command = self.command("postgres");
        command.args(["-D", data, "-p", &port.to_string()]);
        for setting in
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        {
            command.args(["-c", setting]);
        }
        let process = command.spawn().expect("the server starts");
        let server = Server { process, port };
        while server.connect().await.is_none() {
            tokio::task::yield_now().await;
        }
        server
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.path);
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(Path::new("/proc/self")).is_ok_and(|process| process.uid() == 0)
}

/// A server, killed on drop.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn url(&self) -> String {
        format!("postgres://requeue@127.0.0.1:{}/postgres", self.port)
    }

    async fn connect(&self) -> Option<Client> {
        let (client, connection) =
            tokio_postgres::connect(&self.url(), NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    async fn query<T>(&self, sql: &str) -> T
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let client = self.connect().await.expect("the server answers");
        client.query_one(sql, &[]).await.expect("the query succeeds").get(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _killed = self.process.kill();
        let _ended = self.process.wait();
    }
}

/// Tokens are kept with the data, so a standby with a slow clock continues behind them.
#[test]
fn store_follows_a_failover_and_tokens_increase() {
    let Some(folder) = Folder::create() else { return };
    block_on(async {
        let init = ["-D", "primary", "-U", "requeue", "--auth=trust", "--no-sync"];
        folder.run("initdb", &[&init[..], &["--encoding=UTF8", "--locale=C"]].concat());
        let primary = folder.start("primary").await;
        let port = primary.port.to_string();
        let copy = ["-h", "127.0.0.1", "-p", &port, "-U", "requeue", "-D", "standby"];
        let how = ["-R", "--checkpoint=fast", "--no-sync"];
        folder.run("pg_basebackup", &[&copy[..], &how].concat());
        let standby = folder.start("standby").await;

        let clock = EngineClock::new();
        let both = format!(
            "postgres://requeue@127.0.0.1:{},127.0.0.1:{}/postgres",
            standby.port, primary.port
        );
        let builder = PostgresStore::builder(both).clock(clock.clone());
        let store = builder.open().await.unwrap();
        store.add(&[add("a"), add("b")]).all().await.unwrap();
        let grants = lease(&store, 2).await;
        store.finish(&[done(&grants[0])]).all().await.unwrap();
        let sent = "select count(*) > 0 from pg_stat_replication
            where replay_lsn >= pg_current_wal_lsn()";
        while !primary.query::<bool>(sent).await {
            tokio::task::yield_now().await;
        }

        let reader = PostgresStore::builder(standby.url()).must_exist();
        let reader = reader.open().await.unwrap();
        assert_eq!(reader.stats().await.unwrap().processing, 1);
        let error = reader.add(&[add("c")]).all().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");

        drop(primary);
        let error = store.add(&[add("c")]).all().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(standby.query::<bool>("select pg_promote()").await);
        clock.set_back(Duration::from_secs(3600));
        while let Err(error) = store.add(&[add("a")]).all().await {
            assert!(error.is_transient(), "{error}");
        }
        let again = lease(&store, 1).await;
        assert!(again[0].token > grants[1].token, "{again:?} after {grants:?}");
        assert_eq!(store.stats().await.unwrap().processing, 2);
    });
}
