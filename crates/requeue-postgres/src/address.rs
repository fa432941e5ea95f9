//! The address of a database. Printed without its password.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;

use requeue_store::{Error, ErrorKind};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Config, Error as DriverError, NoTls};

use crate::ssl::{self, Encryption};
#[cfg(feature = "tls")]
use crate::ssl::{Roots, Verification};

/// Default time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Polls a connection for messages. Polling also drives its I/O.
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
    /// Parses a URL, `postgres://user:password@host:port/database`, or a list of `key=value`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let (text, encryption) = ssl::take(&normalized(text)?)?;
        // The driver's message may contain parts of a password.
        let mut config =
            Config::from_str(&text).map_err(|error| invalid(&reason(&text, &error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it has no host"));
        }
        add_password(&mut config, std::env::var_os("PGPASSWORD"));
        config.ssl_mode(match encryption {
            Encryption::None => SslMode::Disable,
            Encryption::Preferred => SslMode::Prefer,
            Encryption::Required(..) => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("requeue");
        }
        #[cfg(not(feature = "tls"))]
        reject_tls(&encryption)?;
        Ok(Self {
            config,
            #[cfg(feature = "tls")]
            tls: connector(&encryption)?,
        })
    }

    /// Connects, with TLS if the address asks for it.
    pub(crate) async fn connect(
        &self,
    ) -> Result<(tokio_postgres::Client, Messages), DriverError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let (client, mut connection) = self.config.connect(tls.clone()).await?;
            return Ok((client, Box::new(move |cx| connection.poll_message(cx))));
        }
        let (client, mut connection) = self.config.connect(NoTls).await?;
        Ok((client, Box::new(move |cx| connection.poll_message(cx))))
    }

    /// Returns the user, empty if the address has none.
    pub(crate) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// Returns the database, by default named after the user.
    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_else(|| self.user())
    }
}

/// Uses the password of the environment if the address has none, as libpq does.
fn add_password(config: &mut Config, password: Option<OsString>) {
    let password = password.filter(|password| !password.is_empty());
    if let (None, Some(password)) = (config.get_password(), password) {
        config.password(password.as_encoded_bytes());
    }
}

fn invalid(why: &str) -> Error {
    let text = format!(
        "the address of the PostgreSQL database is invalid: {why}; expected \
         postgres://user:password@host:port/database"
    );
    Error::new(ErrorKind::Invalid, text)
}

/// URL schemes of PostgreSQL.
const SCHEMES: [&str; 2] = ["postgres", "postgresql"];

/// Rewrites a URL so that the driver understands it. Returns other texts unchanged.
///
/// The driver ends the password at the first `@` and prints the rest of it as part of the
/// host. So the last `@` before the path ends the password, and an `@` in the path is an
/// error: a `/` before it may belong to the password.
fn normalized(text: &str) -> Result<String, Error> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok(text.to_owned());
    };
    let scheme = scheme.to_ascii_lowercase();
    if !SCHEMES.contains(&scheme.as_str()) {
        return Ok(text.to_owned());
    }
    let (authority, path) = rest.split_at(rest.find(ENDS).unwrap_or(rest.len()));
    if path.contains('@') {
        return Err(invalid(
            "an @ follows a /, ? or #; in a user, a password or a value write %40 for @, \
             %2F for /, %3F for ? and %23 for #",
        ));
    }
    let authority = match authority.rsplit_once('@') {
        Some((user, hosts)) => format!("{}@{hosts}", user.replace('@', "%40")),
        None => authority.to_owned(),
    };
    Ok(format!("{scheme}://{authority}{path}"))
}

/// Characters that end the user, password and hosts of a URL.
const ENDS: [char; 3] = ['/', '?', '#'];

/// Returns why the driver rejects an address, without any part of a password.
fn reason(text: &str, error: &DriverError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let cause = cause.unwrap_or_default();
    let option = cause.split('`').nth(1).unwrap_or_default();
    if cause.starts_with("unknown option") {
        // The rest of a password that contains & looks like such a name.
        let is_word =
            option.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let told = is_word && !text.contains("password=");
        return if told {
            format!("unknown parameter {option}")
        } else {
            "it has an unknown parameter".to_owned()
        };
    }
    match option {
        "port" => match port_out_of_range(text) {
            Some(port) => format!("port {port} is not from 1 to 65535"),
            None => "the port is not a number from 1 to 65535".to_owned(),
        },
        option if cause.starts_with("invalid value for option") => {
            format!("the value of {option} is invalid")
        }
        _ => "it is incomplete".to_owned(),
    }
}

/// Returns a port number that is out of range. Text that is not a number may be a password,
/// if the host is missing.
fn port_out_of_range(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(ENDS).next()?;
    let hosts = authority.rsplit('@').next()?;
    let is_out_of_range = |port: &&str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_err()
    };
    let ports = hosts.split(',').filter_map(|host| host.rsplit_once(':'));
    let mut ports = ports.map(|(_, port)| port);
    ports.find(|port| !port.is_empty() && is_out_of_range(port))
}

#[cfg(feature = "tls")]
fn connector(
    encryption: &Encryption,
) -> Result<Option<tokio_postgres_rustls::MakeRustlsConnect>, Error> {
    match encryption {
        Encryption::None => Ok(None),
        Encryption::Preferred => {
            crate::tls::connector(Verification::None, &Roots::Platform).map(Some)
        }
        Encryption::Required(verification, roots) => {
            crate::tls::connector(*verification, roots).map(Some)
        }
    }
}

#[cfg(not(feature = "tls"))]
fn reject_tls(encryption: &Encryption) -> Result<(), Error> {
    if let Encryption::None | Encryption::Preferred = encryption {
        return Ok(());
    }
    let text = "the address of the PostgreSQL database requires TLS (sslmode), but this \
                program was built without it";
    Err(Error::new(ErrorKind::Invalid, text))
}

/// `host:port/database`, with all hosts if there are several.
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
    fn address_is_printed_without_its_password() {
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

    /// The rest of a password after its first `@` was printed as the host.
    #[test]
    fn the_last_at_sign_ends_the_password() {
        let address = Address::parse("postgres://me:hun@ter@2@db:1/app").unwrap();
        assert_eq!(address.to_string(), "db:1/app");
        assert_eq!(address.config.get_password(), Some(&b"hun@ter@2"[..]));
        let address = Address::parse("postgres://me@corp:a%40b@db/app").unwrap();
        assert_eq!(address.user(), "me@corp");
        assert_eq!(address.config.get_password(), Some(&b"a@b"[..]));
    }

    /// Parts of the first two passwords were printed as the database or the host.
    #[test]
    fn at_sign_after_the_host_is_rejected_with_advice() {
        for url in [
            "postgres://db/app?user=me&password=hun@ter2",
            "postgres://me:hun@ter/2@db/app",
            "postgres://me:hun?ter2@db/app",
        ] {
            let text = Address::parse(url).unwrap_err().to_string();
            assert!(text.contains("%40") && text.contains("%2F"), "{text}");
            assert!(!text.contains("hun") && !text.contains("ter2"), "{text}");
        }
    }

    #[test]
    fn error_names_the_cause_unless_it_may_be_a_password() {
        for (url, why) in [
            ("postgres://me:secret@db:99999/app", "port 99999 is not from 1 to 65535"),
            ("postgres://me:secret", "the port is not a number from 1 to 65535"),
            ("postgres://me:secret@db/app?foo=1", "unknown parameter foo"),
            ("postgres://db/app?password=a&secret", "incomplete"),
            ("postgres://db/app?password=a&secret=1", "it has an unknown parameter"),
            ("postgres://me:secret@db/app?connect_timeout=x", "value of connect_timeout"),
            ("postgres:///app", "it has no host"),
        ] {
            let text = Address::parse(url).unwrap_err().to_string();
            assert!(text.contains(why) && !text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn password_of_the_environment_is_the_default() {
        let password = |url: &str, told: Option<&str>| {
            let mut config = Config::from_str(url).unwrap();
            add_password(&mut config, told.map(OsString::from));
            config.get_password().map(|told| String::from_utf8(told.to_vec()).unwrap())
        };
        let (with, without) = ("postgres://me:a@db", "postgres://me@db");
        assert_eq!(password(with, Some("b")).as_deref(), Some("a"));
        assert_eq!(password(without, Some("b")).as_deref(), Some("b"));
        assert_eq!(password(without, Some("")), None);
        assert_eq!(password(without, None), None);
    }

    #[test]
    fn scheme_is_case_insensitive() {
        let address = Address::parse("POSTGRES://me@db/app?sslmode=disable").unwrap();
        assert_eq!(address.to_string(), "db:5432/app");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_is_rejected_without_the_feature() {
        let url = "postgres://me@host/app?sslmode=require";
        assert_eq!(Address::parse(url).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn unreadable_certificate_file_is_named() {
        let url = "postgres://me@host/app?sslmode=verify-full&sslrootcert=/no/such.pem";
        let error = Address::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("sslrootcert=/no/such.pem"), "{error}");
    }
}
