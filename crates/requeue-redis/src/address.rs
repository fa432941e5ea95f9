//! Parsing the address of a server or cluster.

use std::path::Path;

use redis::{ClientTlsConfig, IntoConnectionInfo, TlsCertificates};
use requeue_store::{Error, ErrorKind};

/// The schemes of clusters, and of their nodes.
const CLUSTERS: [(&str, &str); 2] =
    [("redis-cluster://", "redis://"), ("rediss-cluster://", "rediss://")];

/// The characters that end the user, password and hosts of an address.
const AUTHORITY_ENDS: [char; 3] = ['/', '?', '#'];

#[derive(Debug)]
pub(crate) struct Address {
    /// One client for a server, or one for each named node of a cluster.
    pub(crate) clients: Vec<redis::Client>,
    pub(crate) is_cluster: bool,
}

impl Address {
    /// Parses an address and reads the files that it names. Does not connect.
    pub(crate) fn parse(address: &str) -> Result<Self, Error> {
        let (address, files) = split_files(&normalize(address)?)?;
        let cluster = CLUSTERS.iter().find_map(|(cluster, node)| {
            address.strip_prefix(cluster).map(|nodes| node_urls(nodes, node).collect())
        });
        let is_cluster = cluster.is_some();
        let urls: Vec<String> = cluster.unwrap_or_else(|| vec![address]);
        let clients = urls.iter().map(|url| client(url, &files));
        Ok(Self { clients: clients.collect::<Result<_, _>>()?, is_cluster })
    }
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

/// Removes the file parameters from an address and reads the files.
fn split_files(address: &str) -> Result<(String, Files), Error> {
    let mut files = Files::default();
    let Some((start, query)) = address.split_once('?') else {
        return Ok((address.to_owned(), files));
    };
    let is_socket = is_socket(start.split("://").next().unwrap_or_default());
    let mut rest = Vec::new();
    for part in query.split('&') {
        match part.split_once('=').unwrap_or((part, "")) {
            ("ca", path) => files.ca = Some(read("ca", path)?),
            ("cert", path) => files.cert = Some(read("cert", path)?),
            ("key", path) => files.key = Some(read("key", path)?),
            ("protocol", _) => rest.push(part),
            _ if is_socket => rest.push(part),
            (unknown, _) => return Err(invalid(&unknown_parameter(unknown))),
        }
    }
    let mark = if rest.is_empty() { "" } else { "?" };
    Ok((format!("{start}{mark}{}", rest.join("&")), files))
}

/// Shows the name of a parameter only if it is a word: otherwise it may be part of a password.
fn unknown_parameter(name: &str) -> String {
    let known = "the parameters are ca, cert, key and protocol";
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
         or as redis-cluster://user:password@host:port,host:port; \
         with TLS as rediss:// or rediss-cluster://"
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

/// Returns the addresses of the nodes of a cluster, which share user and password.
fn node_urls<'a>(nodes: &'a str, scheme: &'a str) -> impl Iterator<Item = String> + 'a {
    let (user, nodes) = nodes
        .rsplit_once('@')
        .map_or(("", nodes), |(user, rest)| (&nodes[..=user.len()], rest));
    nodes
        .trim_end_matches('/')
        .split(',')
        .map(move |node| format!("{scheme}{user}{node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_for(address: &str) -> String {
        let error = Address::parse(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }

    #[test]
    fn nodes_of_a_cluster_share_user_and_password() {
        let urls: Vec<_> = node_urls("me:p@ss@one:7000,two/", "redis://").collect();
        assert_eq!(urls, ["redis://me:p@ss@one:7000", "redis://me:p@ss@two"]);
        let urls: Vec<_> = node_urls("one", "rediss://").collect();
        assert_eq!(urls, ["rediss://one"]);
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
        assert!(!Address::parse("REDIS://h:1").unwrap().is_cluster);
        assert!(Address::parse("Redis-Cluster://h:1").unwrap().is_cluster);
    }

    #[test]
    fn other_parameters_stay_in_the_address() {
        let (address, _) = split_files("redis://localhost?protocol=resp3").unwrap();
        assert_eq!(address, "redis://localhost?protocol=resp3");
    }
}
