//! The tables and functions in the database: their version and their migrations.

use std::fmt;

use requeue_store::{Error, ErrorKind};
use tokio_postgres::Transaction;

use crate::address::Address;
use crate::error;
use crate::session::Session;

/// The schema version of this program.
const VERSION: i32 = 6;

/// Migrations, each from the version before.
const MIGRATIONS: [(i32, &str); 6] = [
    (1, include_str!("../migrations/001.sql")),
    (2, include_str!("../migrations/002.sql")),
    (3, include_str!("../migrations/003.sql")),
    (4, include_str!("../migrations/004.sql")),
    (5, include_str!("../migrations/005.sql")),
    (6, include_str!("../migrations/006.sql")),
];

/// Creates the table of versions.
const VERSIONS: &str = include_str!("../migrations/000.sql");

/// The functions. Every migration replaces all of them.
const FUNCTIONS: [&str; 21] = [
    include_str!("../sql/tools.sql"),
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

    /// Checks the versions of the server and the schema, and creates or migrates the schema
    /// if it is missing or older.
    pub(crate) async fn prepare(
        &self,
        session: &mut Session,
        address: &Address,
    ) -> Result<(), Error> {
        check_server(session, address).await?;
        let found = self.version(session).await.map_err(|error| wrap(error, address))?;
        if found == VERSION {
            return Ok(());
        }
        self.refuse_newer(found, address)?;
        self.migrate(session, address).await
    }

    /// Returns the version of the schema, 0 if it does not exist.
    async fn version(&self, session: &mut Session) -> Result<i32, tokio_postgres::Error> {
        let text = self.apply("select coalesce(max(version), 0) from requeue.migration");
        match session.client().query_one(&text, &[]).await {
            Ok(row) => row.try_get(0),
            Err(error) if error::is_absence(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn refuse_newer(&self, found: i32, address: &Address) -> Result<(), Error> {
        if found <= VERSION {
            return Ok(());
        }
        let text = format!(
            "the schema {self} of {address} has version {found}, but this program supports \
             only {VERSION}; use a newer program"
        );
        Err(Error::new(ErrorKind::Version, text))
    }

    async fn migrate(
        &self,
        session: &mut Session,
        address: &Address,
    ) -> Result<(), Error> {
        let wrap = |error| wrap(error, address);
        let transaction = session.client().transaction().await.map_err(wrap)?;
        let found = self.begin_migration(&transaction).await.map_err(wrap)?;
        self.refuse_newer(found, address)?;
        if found < VERSION {
            self.run_migrations(&transaction, found).await.map_err(wrap)?;
        }
        transaction.commit().await.map_err(wrap)
    }

    /// Waits for a migration by another program. Returns the version after it.
    async fn begin_migration(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<i32, tokio_postgres::Error> {
        transaction.batch_execute(&self.apply(VERSIONS)).await?;
        let text = self.apply("select coalesce(max(version), 0) from requeue.migration");
        transaction.query_one(&text, &[]).await?.try_get(0)
    }

    async fn run_migrations(
        &self,
        transaction: &Transaction<'_>,
        found: i32,
    ) -> Result<(), tokio_postgres::Error> {
        for (version, migration) in MIGRATIONS.iter().filter(|(to, _)| *to > found) {
            transaction.batch_execute(&self.apply(migration)).await?;
            let text = self.apply("insert into requeue.migration (version) values ($1)");
            transaction.execute(&text, &[version]).await?;
        }
        for functions in FUNCTIONS {
            transaction.batch_execute(&self.apply(functions)).await?;
        }
        Ok(())
    }
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
        .query_one("select current_setting('server_version_num')::integer", &[])
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
