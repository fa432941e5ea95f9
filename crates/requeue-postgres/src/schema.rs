//! The tables and functions in the database: their version and their migrations.

use std::fmt;

use requeue::{Clock, SystemClock};
use requeue_store::{Error, ErrorKind, Migration};
use tokio_postgres::Transaction;

use crate::address::Address;
use crate::builder::Absence;
use crate::error;
use crate::pool::PoolOptions;
use crate::session::Session;

/// The schema version of this program.
///
/// A program works with a schema of exactly this version. The functions of the version
/// before keep their parameters and results, so programs of that version keep working after
/// a migration.
const VERSION: i32 = 7;

/// Migrations, each from the version before.
const MIGRATIONS: [(i32, &str); 7] = [
    (1, include_str!("../migrations/001.sql")),
    (2, include_str!("../migrations/002.sql")),
    (3, include_str!("../migrations/003.sql")),
    (4, include_str!("../migrations/004.sql")),
    (5, include_str!("../migrations/005.sql")),
    (6, include_str!("../migrations/006.sql")),
    (7, include_str!("../migrations/007.sql")),
];

/// How long a migration waits for each lock before it starts again.
const LOCK_TIMEOUT: &str = "set local lock_timeout = '2s'";

/// Creates the table of versions.
const VERSIONS: &str = include_str!("../migrations/000.sql");

/// The functions. Every migration replaces all of them.
const FUNCTIONS: [&str; 24] = [
    include_str!("../sql/tools.sql"),
    include_str!("../sql/counts.sql"),
    include_str!("../sql/due.sql"),
    include_str!("../sql/expire.sql"),
    include_str!("../sql/priority.sql"),
    include_str!("../sql/add.sql"),
    include_str!("../sql/add_rate_limited.sql"),
    include_str!("../sql/wake.sql"),
    include_str!("../sql/lease.sql"),
    include_str!("../sql/finish.sql"),
    include_str!("../sql/extend.sql"),
    include_str!("../sql/reclaim.sql"),
    include_str!("../sql/forget.sql"),
    include_str!("../sql/remove.sql"),
    include_str!("../sql/look.sql"),
    include_str!("../sql/stats.sql"),
    include_str!("../sql/failing.sql"),
    include_str!("../sql/workers.sql"),
    include_str!("../sql/dead.sql"),
    include_str!("../sql/revive.sql"),
    include_str!("../sql/drop_dead.sql"),
    include_str!("../sql/pause.sql"),
    include_str!("../sql/take.sql"),
    include_str!("../sql/each.sql"),
];

/// The oldest supported server, as `server_version_num`.
const OLDEST_SERVER: i32 = 130_000;

/// The name of the schema.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Schema {
    quoted: String,
}

impl Schema {
    /// Checks a name. It is inserted into SQL, and into the name of a channel, which has at
    /// most 63 bytes.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > 40 || !name.chars().all(allowed) {
            let text = format!(
                "the schema name {name:?} is invalid; use up to 40 lowercase letters, \
                 digits and underscores"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(Self { quoted: format!("\"{name}\"") })
    }

    /// Returns the quoted name.
    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    /// Returns the channel that notifies the workers of a queue.
    pub(crate) fn channel(&self, queue: i32) -> String {
        format!("{}.{queue}", self.quoted)
    }

    /// Inserts the name into SQL.
    fn apply(&self, sql: &str) -> String {
        let quoted = self.quoted();
        sql.replace("\"requeue\"", quoted).replace("requeue.", &format!("{quoted}."))
    }

    /// Checks the versions of the server and the schema. Creates the schema if it does not
    /// exist, unless it must.
    pub(crate) async fn prepare(
        &self,
        session: &mut Session,
        options: &PoolOptions,
        absence: Absence,
    ) -> Result<(), Error> {
        let address = &options.address;
        check_server(session, address).await?;
        let found = self.version(session).await.map_err(|error| wrap(error, address))?;
        match found {
            VERSION => Ok(()),
            0 if absence == Absence::Create => {
                self.apply_migrations(session, options).await.map(drop)
            }
            0 => Err(self.absent(address)),
            1..VERSION => Err(self.outdated(found, address)),
            _ => Err(self.newer_than_program(found, address)),
        }
    }

    /// Migrates the schema, or only says what it would do.
    pub(crate) async fn migrate(
        &self,
        session: &mut Session,
        options: &PoolOptions,
        dry_run: bool,
    ) -> Result<Migration, Error> {
        let address = &options.address;
        check_server(session, address).await?;
        let mut found =
            self.version(session).await.map_err(|error| wrap(error, address))?;
        match found {
            0 => return Err(self.absent(address)),
            1..=VERSION => {}
            _ => return Err(self.newer_than_program(found, address)),
        }
        let applied = !dry_run && found < VERSION;
        if applied {
            found = self.apply_migrations(session, options).await?;
        }
        Ok(Migration {
            from: found.unsigned_abs(),
            to: VERSION.unsigned_abs(),
            steps: steps_after(found),
            applied,
        })
    }

    /// Returns the version of the schema, 0 if it does not exist.
    async fn version(&self, session: &mut Session) -> Result<i32, tokio_postgres::Error> {
        let text = self.apply("select coalesce(max(version), 0) from requeue.migration");
        match session.client().query_typed_one(&text, &[]).await {
            Ok(row) => row.try_get(0),
            Err(error) if error::is_absence(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Returns the version of the schema if it is newer than this program.
    pub(crate) async fn newer(&self, session: &mut Session) -> Option<i32> {
        self.version(session).await.ok().filter(|found| *found > VERSION)
    }

    fn absent(&self, address: &Address) -> Error {
        let text = format!(
            "the database at {address} has no schema {self}; opening a queue creates it"
        );
        Error::new(ErrorKind::Invalid, text)
    }

    fn outdated(&self, found: i32, address: &Address) -> Error {
        let text = format!(
            "the schema {self} of {address} has version {found}, and this program needs \
             version {VERSION}; run `requeue migrate --store postgres://{address}`, with your \
             user and password"
        );
        Error::new(ErrorKind::Version, text)
    }

    fn newer_than_program(&self, found: i32, address: &Address) -> Error {
        let text = format!(
            "the schema {self} of {address} has version {found}, but this program supports \
             only {VERSION}; use a newer program"
        );
        Error::new(ErrorKind::Version, text)
    }

    /// Applies all migrations that are missing. Returns the version before.
    ///
    /// Repeats the attempt while a transaction holds a lock that it needs. It waits only a
    /// moment each time, because other calls wait behind it.
    async fn apply_migrations(
        &self,
        session: &mut Session,
        options: &PoolOptions,
    ) -> Result<i32, Error> {
        let wrap = |error| wrap(error, &options.address);
        let begun = SystemClock.now();
        let found = loop {
            match self.try_migrate(session).await {
                Err(error)
                    if error::is_lock_timeout(&error)
                        && begun.elapsed() < options.timeout => {}
                found => break found.map_err(wrap)?,
            }
        };
        if found > VERSION {
            return Err(self.newer_than_program(found, &options.address));
        }
        if (1..VERSION).contains(&found) {
            // A call that began before the migration may have changed keys without counting
            // them, so they are counted once more.
            let text = self.apply("select requeue.recount()");
            session.client().batch_execute(&text).await.map_err(wrap)?;
        }
        Ok(found)
    }

    /// Applies the migrations in one transaction. Waits for one by another program. Returns
    /// the version before.
    async fn try_migrate(
        &self,
        session: &mut Session,
    ) -> Result<i32, tokio_postgres::Error> {
        let transaction = session.client().transaction().await?;
        transaction.batch_execute(&self.apply(VERSIONS)).await?;
        let text = self.apply("select coalesce(max(version), 0) from requeue.migration");
        let found = transaction.query_typed_one(&text, &[]).await?.try_get(0)?;
        if found < VERSION {
            self.run_migrations(&transaction, found).await?;
        }
        transaction.commit().await?;
        Ok(found)
    }

    async fn run_migrations(
        &self,
        transaction: &Transaction<'_>,
        found: i32,
    ) -> Result<(), tokio_postgres::Error> {
        transaction.batch_execute(LOCK_TIMEOUT).await?;
        for (version, migration) in MIGRATIONS.iter().filter(|(to, _)| *to > found) {
            let record =
                format!("insert into requeue.migration (version) values ({version})");
            transaction.batch_execute(&self.apply(migration)).await?;
            transaction.batch_execute(&self.apply(&record)).await?;
        }
        for functions in FUNCTIONS {
            transaction.batch_execute(&self.apply(functions)).await?;
        }
        transaction.batch_execute(&self.apply("select requeue.recount()")).await
    }
}

/// Returns the first sentence of each migration after a version.
fn steps_after(found: i32) -> Vec<String> {
    let missing = MIGRATIONS.iter().filter(|(version, _)| *version > found);
    let first_line = |sql: &str| sql.lines().next().unwrap_or_default().to_owned();
    missing.map(|(_, sql)| first_line(sql).trim_start_matches("-- ").to_owned()).collect()
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.quoted)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.quoted)
    }
}

fn wrap(error: tokio_postgres::Error, address: &Address) -> Error {
    error::of_call(error, "opening", &format!("PostgreSQL at {address}"))
}

async fn check_server(session: &mut Session, address: &Address) -> Result<(), Error> {
    let row = session
        .client()
        .query_typed_one("select current_setting('server_version_num')::integer", &[])
        .await
        .map_err(|error| wrap(error, address))?;
    let version: i32 = row.try_get(0).map_err(|error| wrap(error, address))?;
    check_version(version, address)
}

fn check_version(version: i32, address: &Address) -> Result<(), Error> {
    if version >= OLDEST_SERVER {
        return Ok(());
    }
    let (version, oldest) = (version / 10_000, OLDEST_SERVER / 10_000);
    let text = format!(
        "PostgreSQL at {address} has version {version}; {oldest} or newer is required"
    );
    Err(Error::new(ErrorKind::Version, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_the_migrations_after_a_version() {
        assert_eq!(steps_after(VERSION), Vec::<String>::new());
        let steps = steps_after(5);
        assert_eq!(steps.len(), 2);
        assert!(steps[1].starts_with("Version 7: counts of keys"), "{steps:?}");
    }

    #[test]
    fn old_server_is_rejected_with_its_version() {
        let address = Address::parse("postgres://me:secret@db:1/app").unwrap();
        let error = check_version(120_005, &address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        assert_eq!(
            error.to_string(),
            "PostgreSQL at db:1/app has version 12; 13 or newer is required"
        );
        assert!(check_version(130_000, &address).is_ok());
    }

    #[test]
    fn schema_name_with_special_characters_is_rejected() {
        for name in ["", "a b", "a\"b", "A", "a.b", &"x".repeat(41)] {
            assert_eq!(Schema::named(name).unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert_eq!(Schema::named("user").unwrap().quoted(), "\"user\"");
    }
}
