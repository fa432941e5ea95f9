//! Parsing the address of a server, a cluster or sentinels.

use std::path::Path;

use redis::{ClientTlsConfig, IntoConnectionInfo, TlsCertificates};
use requeue_store::{Error, ErrorKind};

use crate::sentinel::Sentinels;

/// The schemes of several hosts, and of one of them.
const CLUSTERS: [(&str, &str); 2] =
    [("redis-cluster://", "redis://"), ("rediss-cluster://", "rediss://")];
const SENTINELS: [(&str, &str); 2] =
    [("redis+sentinel://", "redis://"), ("rediss+sentinel://", "rediss://")];

const SENTINEL_PORT: u16 = 26379;

/// The characters that end the user, password and hosts of an address.
const AUTHORITY_ENDS: [char; 3] = ['/', '?', '#'];

/// Where to connect to. No server was asked yet.
pub(crate) enum Address {
    Server(redis::Client),
    /// The named nodes; at least one.
    Cluster(Vec<redis::Client>),
    Sentinels(Sentinels),
}

impl Address {
    /// Parses an address and reads the files that it names. Does not connect.
    pub(crate) fn parse(address: &str) -> Result<Self, Error> {
        let (address, parameters) = split_parameters(&normalize(address)?)?;
        for (scheme, server) in SENTINELS {
            if let Some(rest) = address.strip_prefix(scheme) {
                return Ok(Self::Sentinels(sentinels(rest, server, &parameters)?));
            }
        }
        parameters.check_no_sentinels()?;
        for (scheme, server) in CLUSTERS {
            if let Some(nodes) = address.strip_prefix(scheme) {
                let (user, nodes) = split_user(nodes);
                let nodes = host_urls(server, user, nodes.trim_end_matches('/'), "");
                let clients = nodes.iter().map(|url| client(url, &parameters.files));
                return Ok(Self::Cluster(clients.collect::<Result<_, _>>()?));
            }
        }
        Ok(Self::Server(client(&address, &parameters.files)?))
    }
}

fn sentinels(
    rest: &str,
    scheme: &str,
    parameters: &Parameters,
) -> Result<Sentinels, Error> {
    let (user, rest) = split_user(rest);
    let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
    let primary = decode(name.trim_end_matches('/'))?;
    if primary.is_empty() || primary.contains('/') {
        return Err(invalid("it does not name the primary after the sentinels"));
    }
    let db = parameters.db.as_deref().unwrap_or("0");
    let sentinel_user = parameters.sentinel_user();
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => host.to_owned(),
        _ => format!("{host}:{SENTINEL_PORT}"),
    };
    let hosts: Vec<_> = hosts.split(',').map(with_port).collect();
    let urls = host_urls(scheme, &sentinel_user, &hosts.join(","), "");
    let sentinels = urls.iter().map(|url| client(url, &parameters.files));
    Ok(Sentinels {
        hosts: sentinels.collect::<Result<_, _>>()?,
        primary,
        // The sentinels name the host.
        server: client(&format!("{scheme}{user}127.0.0.1/{db}"), &parameters.files)?,
    })
}

/// Returns the address with a lower-case scheme.
///
/// Refuses an `@` after the hosts: the text before it could be a host, which is shown in
/// messages, or part of a password.
fn normalize(address: &str) -> Result<String, Error> {
    let Some((scheme, rest)) = address.split_once("://") else {
        return Err(invalid("it has no ://"));
    };
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(AUTHORITY_ENDS).unwrap_or(rest.len());
    if !is_socket(&scheme) && rest[end..].contains('@') {
        return Err(invalid(
            "there is an @ after a /, ? or #; in a user, a password or a file, write %40 \
             for @, %2F for /, %3F for ? and %23 for #",
        ));
    }
    Ok(format!("{scheme}://{rest}"))
}

/// Returns whether addresses of this scheme are paths of sockets.
fn is_socket(scheme: &str) -> bool {
    scheme.ends_with("unix")
}

fn client(url: &str, files: &Files) -> Result<redis::Client, Error> {
    let info = url.into_connection_info().map_err(|_| invalid(&problem_in(url)))?;
    if !url.starts_with("rediss://") && !url.starts_with("valkeys://") {
        if files.ca.is_some() || files.cert.is_some() || files.key.is_some() {
            let text = "ca, cert and key are for TLS; write the address as rediss://";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        return redis::Client::open(info).map_err(|_| invalid(&problem_in(url)));
    }
    install_crypto_provider();
    redis::Client::build_with_tls(info, files.certificates()?).map_err(|error| {
        let text = "cannot read the certificates for redis; they must be in PEM format";
        Error::new(ErrorKind::Invalid, text).because(error)
    })
}

/// The files that an address names after its `?`, in PEM format.
#[derive(Default)]
struct Files {
    /// The certificate authority, instead of those that the system trusts.
    ca: Option<Vec<u8>>,
    /// The client certificate.
    cert: Option<Vec<u8>>,
    /// The key of the client certificate.
    key: Option<Vec<u8>>,
}

impl Files {
    fn certificates(&self) -> Result<TlsCertificates, Error> {
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig {
                client_cert: cert.clone(),
                client_key: key.clone(),
            }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let text = "the address has cert or key without the other";
                return Err(Error::new(ErrorKind::Invalid, text));
            }
        };
        Ok(TlsCertificates { client_tls, root_cert: self.ca.clone() })
    }
}

/// Installs ring, unless the program has installed another provider.
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread installed one at the same time, that one is used.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// What an address says after its `?`.
#[derive(Default)]
struct Parameters {
    files: Files,
    /// The database of a server behind sentinels.
    db: Option<String>,
    /// User and password of the sentinels, encoded as in an address.
    sentinel: (String, Option<String>),
}

impl Parameters {
    /// Returns user and password of the sentinels as a part of their addresses.
    fn sentinel_user(&self) -> String {
        match &self.sentinel {
            (user, Some(password)) => format!("{user}:{password}@"),
            (user, None) if user.is_empty() => String::new(),
            (user, None) => format!("{user}@"),
        }
    }

    fn check_no_sentinels(&self) -> Result<(), Error> {
        if self.db.is_none() && self.sentinel == Default::default() {
            return Ok(());
        }
        Err(invalid("db, sentinel_user and sentinel_password are for redis+sentinel://"))
    }
}

/// Removes the parameters of this module from an address, and reads the files.
fn split_parameters(address: &str) -> Result<(String, Parameters), Error> {
    let mut all = Parameters::default();
    let Some((start, query)) = address.split_once('?') else {
        return Ok((address.to_owned(), all));
    };
    let is_socket = is_socket(start.split("://").next().unwrap_or_default());
    let mut rest = Vec::new();
    for part in query.split('&') {
        match part.split_once('=').unwrap_or((part, "")) {
            ("ca", path) => all.files.ca = Some(read("ca", path)?),
            ("cert", path) => all.files.cert = Some(read("cert", path)?),
            ("key", path) => all.files.key = Some(read("key", path)?),
            ("protocol", _) => rest.push(part),
            _ if is_socket => rest.push(part),
            ("db", db) => all.db = Some(db.to_owned()),
            ("sentinel_user", user) => user.clone_into(&mut all.sentinel.0),
            ("sentinel_password", password) => all.sentinel.1 = Some(password.to_owned()),
            (unknown, _) => return Err(invalid(&unknown_parameter(unknown))),
        }
    }
    let mark = if rest.is_empty() { "" } else { "?" };
    Ok((format!("{start}{mark}{}", rest.join("&")), all))
}

/// Shows the name of a parameter only if it is a word: otherwise it may be part of a password.
fn unknown_parameter(name: &str) -> String {
    let known = "the parameters are ca, cert, key and protocol, and db, sentinel_user and \
                 sentinel_password with sentinels";
    if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        return format!("unknown parameter {name}; {known}");
    }
    format!("unknown parameter; {known}")
}

/// Reads a file in PEM format. A file without any PEM section would be used as an empty list.
fn read(name: &str, path: &str) -> Result<Vec<u8>, Error> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let path = &path.replace("%40", "@"); // a bare @ is refused
    let refused = |why: &dyn std::fmt::Display| {
        let text = format!("cannot use {path} ({name} in the address of redis): {why}");
        Error::new(ErrorKind::Invalid, text)
    };
    let bytes = std::fs::read(Path::new(path)).map_err(|error| refused(&error))?;
    if bytes.windows(BEGIN.len()).any(|window| window == BEGIN) {
        return Ok(bytes);
    }
    Err(refused(&"it is not in PEM format"))
}

fn invalid(why: &str) -> Error {
    let text = format!(
        "invalid redis address: {why}; \
         write it as redis://user:password@host:port/database, \
         as redis-cluster://user:password@host:port,host:port, \
         or as redis+sentinel://user:password@host:port,host:port/primary; \
         with TLS as rediss://, rediss-cluster:// or rediss+sentinel://"
    );
    Error::new(ErrorKind::Invalid, text)
}

/// Returns what is wrong with the address of one server, without any part of a password. If
/// the host is missing, the text in its place may be a password.
fn problem_in(url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, path) =
        rest.split_at(rest.find(AUTHORITY_ENDS).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let database = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    if host.is_empty() {
        "it has no host".to_owned()
    } else if !port.is_empty() && is_number(port) && port.parse::<u16>().is_err() {
        format!("port {port} is not between 1 and 65535")
    } else if !is_number(port) && !port.ends_with(']') {
        "the port is not a number between 1 and 65535".to_owned()
    } else if !is_number(database) {
        "the database is not a number".to_owned()
    } else {
        "it cannot be parsed".to_owned()
    }
}

/// Splits user and password, with their `@`, off an address without scheme.
fn split_user(rest: &str) -> (&str, &str) {
    let end = rest.find(AUTHORITY_ENDS).unwrap_or(rest.len());
    let user_end = rest[..end].rfind('@').map_or(0, |at| at + 1);
    rest.split_at(user_end)
}

/// Returns the addresses of hosts that share user, password and path.
fn host_urls(scheme: &str, user: &str, hosts: &str, path: &str) -> Vec<String> {
    hosts.split(',').map(|host| format!("{scheme}{user}{host}{path}")).collect()
}

/// Decodes `%` and two hexadecimal digits.
fn decode(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.get(..2).ok_or_else(|| invalid("a % has no two digits"))?;
        let byte = u8::from_str_radix(digits, 16);
        bytes.push(byte.map_err(|_| invalid("a % has no two digits"))?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_for(address: &str) -> String {
        let error = Address::parse(address).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }

    #[test]
    fn nodes_of_a_cluster_share_user_and_password() {
        let (user, nodes) = split_user("me:p@ss@one:7000,two/");
        assert_eq!((user, nodes), ("me:p@ss@", "one:7000,two/"));
        let urls = host_urls("redis://", user, "one:7000,two", "");
        assert_eq!(urls, ["redis://me:p@ss@one:7000", "redis://me:p@ss@two"]);
        assert_eq!(split_user("one/x"), ("", "one/x"));
    }

    #[test]
    fn sentinels_are_parsed_with_their_primary() {
        let address =
            "redis+sentinel://me:secret@a,b:7/my%2Dmain?db=3&sentinel_password=x";
        let Address::Sentinels(all) = Address::parse(address).unwrap() else { panic!() };
        let address = |client: &redis::Client| {
            let info = client.get_connection_info();
            (info.addr().to_string(), info.redis_settings().password().map(str::to_owned))
        };
        let sentinels: Vec<_> = all.hosts.iter().map(address).collect();
        let password = Some("x".to_owned());
        assert_eq!(
            sentinels,
            [("a:26379".to_owned(), password.clone()), ("b:7".to_owned(), password)]
        );
        assert_eq!(all.primary, "my-main");
        let info = all.server.get_connection_info();
        assert_eq!(info.redis_settings().db(), 3);
        assert_eq!(info.redis_settings().password(), Some("secret"));
        assert!(!all.name().contains("secret"), "{}", all.name());
    }

    #[test]
    fn sentinels_without_a_primary_are_refused() {
        for address in ["redis+sentinel://:secret@a", "redis+sentinel://:secret@a/"] {
            let text = error_for(address);
            assert!(text.contains("primary") && !text.contains("secret"), "{text}");
        }
        assert!(error_for("redis://a?db=1").contains("redis+sentinel://"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let text = error_for("rediss://:secret@localhost/0?ca=/no/such/file");
        assert!(text.contains("/no/such/file") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn certificates_need_pem_format_tls_and_a_key() {
        let not_pem = env!("CARGO_MANIFEST_PATH");
        assert!(error_for(&format!("rediss://localhost?ca={not_pem}")).contains("PEM"));
        let name = format!("requeue-address-{}.pem", std::process::id());
        let pem = std::env::temp_dir().join(name);
        std::fs::write(&pem, "-----BEGIN CERTIFICATE-----").unwrap();
        let pem = pem.display();
        assert!(error_for(&format!("redis://localhost?ca={pem}")).contains("rediss://"));
        assert!(
            error_for(&format!("rediss://localhost?cert={pem}"))
                .contains("without the other")
        );
        assert!(error_for(&format!("rediss://localhost?ca={pem}")).contains("PEM"));
        std::fs::remove_file(pem.to_string()).unwrap();
    }

    /// The text before the `?` was shown as host and port.
    #[test]
    fn an_at_sign_after_the_hosts_is_refused() {
        for address in ["redis://me:123?x@h", "redis-cluster://:12/3@h", "redis://h#a@b"]
        {
            let text = error_for(address);
            assert!(text.contains("%40") && !text.contains("12"), "{text}");
        }
        assert!(Address::parse("redis://me:a@b@h").is_ok());
        assert!(Address::parse("redis+unix:///tmp/a@b?pass=c@d").is_ok());
    }

    #[test]
    fn problems_are_named_without_parts_of_passwords() {
        for (address, why) in [
            ("redis://me:secret@h:99999", "port 99999 is not between 1 and 65535"),
            ("redis-cluster://me:secret@h:1,i:70000", "port 70000 is not"),
            ("redis://me:secret", "the port is not a number"),
            ("redis://:secret@/0", "it has no host"),
            ("redis://me:secret@h/db", "the database is not a number"),
            (
                "redis://me:secret@h?foo=1",
                "unknown parameter foo; the parameters are ca,",
            ),
            ("secret@h", "it has no ://"),
        ] {
            let text = error_for(address);
            assert!(text.contains(why) && !text.contains("secret"), "{address}: {text}");
        }
    }

    #[test]
    fn schemes_are_case_insensitive() {
        let parse = |address| Address::parse(address).unwrap();
        assert!(matches!(parse("REDIS://h:1"), Address::Server(_)));
        assert!(matches!(parse("Redis-Cluster://h:1"), Address::Cluster(_)));
    }

    #[test]
    fn other_parameters_stay_in_the_address() {
        let (address, _) = split_parameters("redis://localhost?protocol=resp3").unwrap();
        assert_eq!(address, "redis://localhost?protocol=resp3");
    }
}
