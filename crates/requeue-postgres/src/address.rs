//! The address of a database. Printed without its password.

use std::fmt;
use std::str::FromStr;
use std::task::{Context, Poll};

use requeue_store::{Error, ErrorKind};
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::{AsyncMessage, Config, Error as DriverError, NoTls};

use crate::error;
use crate::params::Params;
use crate::password::{Login, Passwords};
use crate::ssl::{Encryption, Tls};

/// Default time limit for connecting to one host, in seconds.
const CONNECT_TIMEOUT: &str = "5";

/// Finds dead peers within a minute. The system's default takes hours.
const KEEPALIVES: [(&str, &str); 4] = [
    ("keepalives_idle", "30"),
    ("keepalives_interval", "10"),
    ("keepalives_retries", "3"),
    ("tcp_user_timeout", "60"),
];

/// Polls a connection for messages. Polling also drives its I/O.
pub(crate) type Messages = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, DriverError>>> + Send,
>;

/// A database on a server, or on several of which one accepts writes.
#[derive(Clone)]
pub(crate) struct Address {
    /// One for each host.
    configs: Vec<Config>,
    passwords: Passwords,
    pooler: bool,
    #[cfg(feature = "tls")]
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
}

impl Address {
    /// Parses a URL, `postgres://user:password@host:port/database`, or a list of `key=value`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut params = Params::parse(&normalized(text)?)?;
        let tls = Tls::take(&mut params)?;
        let passwords = Passwords::new(params.take("passfile"));
        let pooler = pooler(params.take("pgbouncer").as_deref())?;
        add_defaults(&mut params);
        let writes_to_any = !params.has("target_session_attrs");
        let text = params.render();
        // The driver's message may contain parts of a password.
        let config =
            Config::from_str(&text).map_err(|error| invalid(&reason(&text, &error)))?;
        let mut configs = split(&config)?;
        if configs.len() > 1 && writes_to_any {
            let write = tokio_postgres::config::TargetSessionAttrs::ReadWrite;
            for config in &mut configs {
                config.target_session_attrs(write);
            }
        }
        #[cfg(not(feature = "tls"))]
        reject_tls(&tls)?;
        Ok(Self {
            configs,
            passwords,
            pooler,
            #[cfg(feature = "tls")]
            tls: connector(&tls)?,
        })
    }

    /// Connects to the first host that is willing, with TLS if the address asks for it.
    ///
    /// Returns the error of the last host. Each host has its own time limit, so that a
    /// silent one does not keep the others from being tried.
    pub(crate) async fn connect(
        &self,
    ) -> Result<(tokio_postgres::Client, Messages), Error> {
        let mut configs: Vec<_> = self.configs.iter().collect();
        if self.configs[0].get_load_balance_hosts() == LoadBalanceHosts::Random {
            let first = crate::random(configs.len());
            configs.rotate_left(first);
        }
        let mut failure = None;
        for config in configs {
            let connecting = self.connect_to(config);
            let connected = match config.get_connect_timeout() {
                Some(limit) => tokio::time::timeout(*limit, connecting).await,
                None => Ok(connecting.await),
            };
            match connected {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => failure = Some(error::of_connecting(error, self)),
                Err(_) => failure = Some(error::of_silent_server(self)),
            }
        }
        Err(failure.unwrap_or_else(|| invalid("it has no host")))
    }

    async fn connect_to(
        &self,
        config: &Config,
    ) -> Result<(tokio_postgres::Client, Messages), DriverError> {
        let mut config = config.clone();
        if config.get_password().is_none() {
            if let Some(password) = self.passwords.find(&login(&config)) {
                config.password(password);
            }
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let (client, mut connection) = config.connect(tls.clone()).await?;
            return Ok((client, Box::new(move |cx| connection.poll_message(cx))));
        }
        let (client, mut connection) = config.connect(NoTls).await?;
        Ok((client, Box::new(move |cx| connection.poll_message(cx))))
    }

    /// Returns whether a pooler assigns a connection of the server for each transaction.
    pub(crate) fn is_pooler(&self) -> bool {
        self.pooler
    }

    /// Returns advice for a missing password.
    pub(crate) fn password_advice(&self) -> String {
        let advice = self.passwords.advice();
        advice.map_or_else(String::new, |advice| format!("; {advice}"))
    }

    /// Returns the user, empty if the address has none.
    pub(crate) fn user(&self) -> &str {
        self.configs[0].get_user().unwrap_or_default()
    }

    /// Returns the database, by default named after the user.
    pub(crate) fn database(&self) -> &str {
        self.configs[0].get_dbname().unwrap_or_else(|| self.user())
    }
}

fn pooler(value: Option<&str>) -> Result<bool, Error> {
    match value {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid("pgbouncer is neither true nor false")),
    }
}

fn add_defaults(params: &mut Params) {
    let defaults =
        [("connect_timeout", CONNECT_TIMEOUT), ("application_name", "requeue")];
    for (name, value) in defaults.into_iter().chain(KEEPALIVES) {
        if !params.has(name) {
            params.push(name, value);
        }
    }
}

/// Splits a configuration into one for each host.
fn split(config: &Config) -> Result<Vec<Config>, Error> {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let number = hosts.len().max(addresses.len());
    if number == 0 {
        return Err(invalid("it has no host"));
    }
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(invalid("it has not one hostaddr for each host"));
    }
    let ports = config.get_ports();
    if ports.len() > 1 && ports.len() != number {
        return Err(invalid("it has not one port for each host"));
    }
    let one = |index: usize| {
        let mut one = without_hosts(config);
        match hosts.get(index) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            #[cfg(unix)]
            Some(Host::Unix(path)) => drop(one.host_path(path)),
            None => {}
        }
        if let Some(address) = addresses.get(index) {
            one.hostaddr(*address);
        }
        one.port(ports.get(index).or(ports.first()).copied().unwrap_or(5432));
        one
    };
    Ok((0..number).map(one).collect())
}

/// Copies everything but the hosts and ports.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    if let Some(user) = config.get_user() {
        copy.user(user);
    }
    if let Some(password) = config.get_password() {
        copy.password(password);
    }
    if let Some(database) = config.get_dbname() {
        copy.dbname(database);
    }
    if let Some(options) = config.get_options() {
        copy.options(options);
    }
    if let Some(name) = config.get_application_name() {
        copy.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        copy.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        copy.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        copy.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        copy.keepalives_retries(retries);
    }
    copy.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    copy
}

/// Returns what identifies the password of a host in the password file.
fn login(config: &Config) -> Login {
    let user = config.get_user().unwrap_or_default();
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => {
            config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default()
        }
    };
    Login {
        host,
        port: config.get_ports().first().copied().unwrap_or(5432),
        database: config.get_dbname().unwrap_or(user).to_owned(),
        user: user.to_owned(),
    }
}

/// Returns the error for an address that cannot be used.
pub(crate) fn invalid(why: &str) -> Error {
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
    tls: &Tls,
) -> Result<Option<tokio_postgres_rustls::MakeRustlsConnect>, Error> {
    if tls.encryption == Encryption::None {
        return Ok(None);
    }
    crate::tls::connector(tls).map(Some)
}

#[cfg(not(feature = "tls"))]
fn reject_tls(tls: &Tls) -> Result<(), Error> {
    if let Encryption::None | Encryption::Preferred = tls.encryption {
        return Ok(());
    }
    let text = "the address of the PostgreSQL database requires TLS (sslmode), but this \
                program was built without it";
    Err(Error::new(ErrorKind::Invalid, text))
}

/// `host:port/database`, with all hosts if there are several.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, config) in self.configs.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let Login { host, port, .. } = login(config);
            write!(f, "{comma}{host}:{port}")?;
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
    fn several_hosts_are_printed_each_with_its_port() {
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
        assert_eq!(address.configs[0].get_password(), Some(&b"hun@ter@2"[..]));
        let address = Address::parse("postgres://me@corp:a%40b@db/app").unwrap();
        assert_eq!(address.user(), "me@corp");
        assert_eq!(address.configs[0].get_password(), Some(&b"a@b"[..]));
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

    /// The driver connects to any server by default, also to a standby.
    #[test]
    fn one_of_several_hosts_must_accept_writes_unless_the_address_says_otherwise() {
        use tokio_postgres::config::TargetSessionAttrs;
        let target = |url: &str| {
            let address = Address::parse(url).unwrap();
            address
                .configs
                .iter()
                .map(Config::get_target_session_attrs)
                .collect::<Vec<_>>()
        };
        let (any, write) = (TargetSessionAttrs::Any, TargetSessionAttrs::ReadWrite);
        assert_eq!(target("postgres://me@one/app"), [any]);
        assert_eq!(target("postgres://me@one,two/app"), [write, write]);
        let url = "postgres://me@one,two/app?target_session_attrs=any";
        assert_eq!(target(url), [any, any]);
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
