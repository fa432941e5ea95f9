//! PostgreSQL servers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::engine::{Engine, Persistence, killed_with_parent};

/// Ends every connection of a client.
const TERMINATE: &str = "select pg_terminate_backend(pid) from pg_stat_activity \
    where backend_type = 'client backend' and pid <> pg_backend_pid()";

impl Engine {
    pub(super) fn postgres(&self) -> Result<Command> {
        let mut command = killed_with_parent();
        as_postgres(&mut command);
        command
            .arg(postgres_program("postgres")?)
            .arg("-D")
            .arg(self.folder.join("data"));
        command.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.args(["-c", "unix_socket_directories=", "-c", "max_connections=100"]);
        let commit = match self.persistence {
            Persistence::None | Persistence::AfterReply => "synchronous_commit=off",
            Persistence::BeforeReply => "synchronous_commit=on",
        };
        command.args(["-c", commit, "-c", "fsync=on"]);
        if self.persistence == Persistence::None {
            // The maximum. The server still writes when its buffers are full.
            command.args(["-c", "wal_writer_delay=10s"]);
        }
        Ok(command)
    }

    /// Creates an empty database cluster that trusts every user of this machine.
    pub(super) fn init_postgres(&self) -> Result<()> {
        if is_root() {
            let parent = self.folder.parent().context("the folder has a parent")?;
            fs::set_permissions(parent, fs::Permissions::from_mode(0o711))?;
            let mut own = Command::new("chown");
            ensure!(
                own.arg("postgres:").arg(&self.folder).status()?.success(),
                "chown failed"
            );
        }
        let mut command = killed_with_parent();
        as_postgres(&mut command);
        command.arg(postgres_program("initdb")?).arg("-D").arg(self.folder.join("data"));
        command.args(["-U", "requeue", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        let output = command.arg("--no-sync").output().context("cannot run initdb")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb failed: {error}");
        Ok(())
    }

    pub(super) fn pg_isready(&self) -> Result<bool> {
        let mut command = Command::new(postgres_program("pg_isready")?);
        command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        Ok(command.status()?.success())
    }

    /// Ends every connection of a client, as an administrator would.
    pub(super) fn terminate_backends(&self) -> Result<()> {
        let mut command = Command::new(postgres_program("psql")?);
        command.args(["-X", "-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        command.args(["-U", "requeue", "-d", "postgres", "-c", TERMINATE]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        ensure!(command.status()?.success(), "psql failed");
        Ok(())
    }
}

/// PostgreSQL refuses to run as root.
fn as_postgres(command: &mut Command) {
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the path of a program of the newest installed PostgreSQL. Debian keeps each
/// version in its own folder.
fn postgres_program(name: &str) -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let programs =
        versions.map(|entry| (version(&entry.path()), entry.path().join("bin")));
    let programs = programs.map(|(version, bin)| (version, bin.join(name)));
    let newest = programs.filter(|(_, program)| program.exists()).max();
    let newest = newest.map(|(_, program)| program);
    newest.with_context(|| {
        format!("{name} is missing: install Debian's package postgresql")
    })
}
