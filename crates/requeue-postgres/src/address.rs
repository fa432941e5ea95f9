//! Where a database is, and how that is said without its password.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use requeue_store::{Error, ErrorKind};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long a server may take to accept a connection, unless the address says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A database on a server.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
}

impl Address {
    /// Reads a URL, `postgres://user:password@host:port/database`, or a list of `key=value`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        // The parser's own message may repeat parts of what it read: a password among them.
        let mut config = Config::from_str(text).map_err(|_| {
            Error::new(
                ErrorKind::Invalid,
                "the address of the PostgreSQL database cannot be read; write \
                 postgres://user:password@host:port/database",
            )
        })?;
        if config.get_ssl_mode() == SslMode::Require {
            let text = "the address of the PostgreSQL database asks for TLS \
                        (sslmode=require), which this program does not speak";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("requeue");
        }
        Ok(Self { config })
    }

    /// What a connection is made with.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The name of the user, if one is told.
    pub(crate) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// The name of the database: the user's, unless told.
    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_else(|| self.user())
    }
}

/// `host:port/database`, of each host if there are several.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        for (number, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => write!(f, "{comma}{name}:{port}")?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{comma}{}:{port}", path.display())?,
            }
        }
        write!(f, "/{}", self.database())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_without_its_password() {
        let address = Address::parse("postgres://me:secret@db.example:6432/app").unwrap();
        assert_eq!(address.to_string(), "db.example:6432/app");
        assert_eq!(format!("{address:?}"), "db.example:6432/app");
    }

    #[test]
    fn several_hosts_are_told_each_with_its_port() {
        let address = Address::parse("postgres://me@one:1,two:2/app").unwrap();
        assert_eq!(address.to_string(), "one:1,two:2/app");
    }

    #[test]
    fn an_address_that_cannot_be_read_is_not_repeated_in_the_error() {
        let error = Address::parse("postgres://me:secret@host:port/app").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!format!("{error:?}").contains("secret"));
    }

    #[test]
    fn tls_is_refused_rather_than_left_out() {
        let url = "postgres://me@host/app?sslmode=require";
        assert_eq!(Address::parse(url).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
