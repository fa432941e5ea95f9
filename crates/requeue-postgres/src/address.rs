//! Where a database is, and how that is said without its password.

use std::fmt;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;

use requeue_store::{Error, ErrorKind};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Error as DriverError, NoTls};

use crate::ssl::{self, Wish};
#[cfg(feature = "tls")]
use crate::ssl::{Check, Roots};

/// How long a server may take to accept a connection, unless the address says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What comes on a connection, by asking again and again; asking is also what sends.
pub(crate) type Messages = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, DriverError>>> + Send,
>;

/// A database on a server.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
    #[cfg(feature = "tls")]
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
}

impl Address {
    /// Reads a URL, `postgres://user:password@host:port/database`, or a list of `key=value`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        // The parser's own message may repeat parts of what it read: a password among them.
        let (text, wish) = ssl::take(text)?;
        let mut config = Config::from_str(&text).map_err(|_| unreadable())?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unreadable());
        }
        config.ssl_mode(match wish {
            Wish::Plain => SslMode::Disable,
            Wish::Preferred => SslMode::Prefer,
            Wish::Demanded(..) => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("requeue");
        }
        #[cfg(not(feature = "tls"))]
        refuse_tls(&wish)?;
        Ok(Self {
            config,
            #[cfg(feature = "tls")]
            tls: connector(&wish)?,
        })
    }

    /// Makes a connection, by TLS if that is asked for.
    pub(crate) async fn connect(&self) -> Result<(Client, Messages), DriverError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let (client, mut connection) = self.config.connect(tls.clone()).await?;
            return Ok((client, Box::new(move |cx| connection.poll_message(cx))));
        }
        let (client, mut connection) = self.config.connect(NoTls).await?;
        Ok((client, Box::new(move |cx| connection.poll_message(cx))))
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

fn unreadable() -> Error {
    let text = "the address of the PostgreSQL database cannot be read; write \
                postgres://user:password@host:port/database";
    Error::new(ErrorKind::Invalid, text)
}

#[cfg(feature = "tls")]
fn connector(
    wish: &Wish,
) -> Result<Option<tokio_postgres_rustls::MakeRustlsConnect>, Error> {
    match wish {
        Wish::Plain => Ok(None),
        Wish::Preferred => {
            crate::tls::connector(Check::Nothing, &Roots::Platform).map(Some)
        }
        Wish::Demanded(check, roots) => crate::tls::connector(*check, roots).map(Some),
    }
}

#[cfg(not(feature = "tls"))]
fn refuse_tls(wish: &Wish) -> Result<(), Error> {
    if let Wish::Plain | Wish::Preferred = wish {
        return Ok(());
    }
    let text = "the address of the PostgreSQL database asks for TLS (sslmode), which this \
                program is built without";
    Err(Error::new(ErrorKind::Invalid, text))
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
        for url in ["postgres://me:secret@host:port/app", "postgres://", "user=me"] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("secret"));
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_is_refused_rather_than_left_out() {
        let url = "postgres://me@host/app?sslmode=require";
        assert_eq!(Address::parse(url).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn authorities_that_cannot_be_read_are_refused_by_their_file() {
        let url = "postgres://me@host/app?sslmode=verify-full&sslrootcert=/no/such.pem";
        let error = Address::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("sslrootcert=/no/such.pem"), "{error}");
    }
}
