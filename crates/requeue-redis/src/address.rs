//! What an address says: which servers, and how they are spoken to.

use std::path::Path;

use redis::{Client, ClientTlsConfig, IntoConnectionInfo, TlsCertificates};
use requeue_store::{Error, ErrorKind};

/// How the address of a cluster begins, and that of each of its nodes then.
const CLUSTERS: [(&str, &str); 2] =
    [("redis-cluster://", "redis://"), ("rediss-cluster://", "rediss://")];

/// The files that are named after the `?` of an address with TLS, in PEM format.
#[derive(Default)]
struct Files {
    /// Whom to trust, instead of whom the system trusts.
    ca: Option<Vec<u8>>,
    /// Who we are.
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

/// The servers that an address names, and whether they are nodes of a cluster.
pub(crate) fn clients_of(address: &str) -> Result<(Vec<Client>, bool), Error> {
    let (address, files) = split_files(&tidied(address)?)?;
    let cluster = CLUSTERS.iter().find_map(|(cluster, node)| {
        address.strip_prefix(cluster).map(|nodes| seeds_in(nodes, node).collect())
    });
    let is_cluster = cluster.is_some();
    let urls: Vec<String> = cluster.unwrap_or_else(|| vec![address]);
    let clients = urls.iter().map(|url| client(url, &files));
    Ok((clients.collect::<Result<_, _>>()?, is_cluster))
}

/// What ends the part of an address that has the user, the password and the hosts.
const ENDS: [char; 3] = ['/', '?', '#'];

/// An address with its scheme in small letters, and no `@` after its hosts: nobody could
/// tell whether what is before that is a host, which people are told, or a password.
fn tidied(address: &str) -> Result<String, Error> {
    let Some((scheme, rest)) = address.split_once("://") else {
        return Err(unreadable("it has no ://"));
    };
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(ENDS).unwrap_or(rest.len());
    if !is_socket(&scheme) && rest[end..].contains('@') {
        return Err(unreadable(
            "an @ comes after a /, ? or #; in a user, a password or a file write %40 for \
             @, %2F for /, %3F for ? and %23 for #",
        ));
    }
    Ok(format!("{scheme}://{rest}"))
}

/// Whether what follows a scheme is the path of a socket.
fn is_socket(scheme: &str) -> bool {
    scheme.ends_with("unix")
}

fn client(url: &str, files: &Files) -> Result<Client, Error> {
    let info = url.into_connection_info().map_err(|_| unreadable(&wrong_in(url)))?;
    if !url.starts_with("rediss://") && !url.starts_with("valkeys://") {
        if files.ca.is_some() || files.cert.is_some() || files.key.is_some() {
            let text = "ca, cert and key are for TLS; write the address as rediss://";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        return Client::open(info).map_err(|_| unreadable(&wrong_in(url)));
    }
    choose_cryptography();
    Client::build_with_tls(info, files.certificates()?).map_err(|error| {
        let text =
            "the certificates for redis cannot be read; they must be in PEM format";
        Error::new(ErrorKind::Invalid, text).because(error)
    })
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
                let text = "cert and key of an address go together: one is missing";
                return Err(Error::new(ErrorKind::Invalid, text));
            }
        };
        Ok(TlsCertificates { client_tls, root_cert: self.ca.clone() })
    }
}

/// A program has one; it may have chosen before.
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If somebody else was quicker, theirs will do.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// Takes the names of files out of an address, and reads them.
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
            (unknown, _) => return Err(unreadable(&unknown_parameter(unknown))),
        }
    }
    let mark = if rest.is_empty() { "" } else { "?" };
    Ok((format!("{start}{mark}{}", rest.join("&")), files))
}

/// One that is no word may be anything, such as a part of a password.
fn unknown_parameter(name: &str) -> String {
    let known = "it is one of ca, cert, key and protocol";
    if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        return format!("unknown parameter {name}, {known}");
    }
    format!("unknown parameter, {known}")
}

/// A file without anything in PEM format would be taken for one that names nobody.
fn read(name: &str, path: &str) -> Result<Vec<u8>, Error> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let path = &path.replace("%40", "@"); // a bare one is refused
    let refused = |why: &dyn std::fmt::Display| {
        let text = format!("the file {path} ({name} of the address of redis): {why}");
        Error::new(ErrorKind::Invalid, text)
    };
    let bytes = std::fs::read(Path::new(path)).map_err(|error| refused(&error))?;
    if bytes.windows(BEGIN.len()).any(|window| window == BEGIN) {
        return Ok(bytes);
    }
    Err(refused(&"it is not in PEM format"))
}

fn unreadable(why: &str) -> Error {
    let text = format!(
        "the address of the redis server cannot be read: {why}; \
         write it as redis://user:password@host:port/database, \
         or as redis-cluster://user:password@host:port,host:port; \
         with TLS as rediss:// or rediss-cluster://"
    );
    Error::new(ErrorKind::Invalid, text)
}

/// Why the address of one server cannot be read, in words that hold nothing of a password:
/// of somebody who forgot the host, what is in its place may be one.
fn wrong_in(url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find(ENDS).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let database = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    if host.is_empty() {
        "it names no host".to_owned()
    } else if !port.is_empty() && is_number(port) && port.parse::<u16>().is_err() {
        format!("port {port} is not from 1 to 65535")
    } else if !is_number(port) && !port.ends_with(']') {
        "its port is no number from 1 to 65535".to_owned()
    } else if !is_number(database) {
        "its database is no number".to_owned()
    } else {
        "some part of it makes no sense".to_owned()
    }
}

/// The addresses of the nodes in what follows the beginning of a cluster's: user and
/// password, if any, are those of all nodes.
fn seeds_in<'a>(nodes: &'a str, scheme: &'a str) -> impl Iterator<Item = String> + 'a {
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

    fn refusal(address: &str) -> String {
        let error = clients_of(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }

    #[test]
    fn the_nodes_of_a_cluster_share_user_and_password() {
        let seeds: Vec<_> = seeds_in("me:p@ss@one:7000,two/", "redis://").collect();
        assert_eq!(seeds, ["redis://me:p@ss@one:7000", "redis://me:p@ss@two"]);
        let seeds: Vec<_> = seeds_in("one", "rediss://").collect();
        assert_eq!(seeds, ["rediss://one"]);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let text = refusal("rediss://:secret@localhost/0?ca=/no/such/file");
        assert!(text.contains("/no/such/file") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn certificates_are_in_pem_format_for_tls_and_with_their_keys() {
        let not_pem = env!("CARGO_MANIFEST_PATH");
        assert!(refusal(&format!("rediss://localhost?ca={not_pem}")).contains("PEM"));
        let name = format!("requeue-address-{}.pem", std::process::id());
        let pem = std::env::temp_dir().join(name);
        std::fs::write(&pem, "-----BEGIN CERTIFICATE-----").unwrap();
        let pem = pem.display();
        assert!(refusal(&format!("redis://localhost?ca={pem}")).contains("rediss://"));
        assert!(refusal(&format!("rediss://localhost?cert={pem}")).contains("missing"));
        assert!(refusal(&format!("rediss://localhost?ca={pem}")).contains("PEM"));
        std::fs::remove_file(pem.to_string()).unwrap();
    }

    /// What was before the `?` was told as a host and its port.
    #[test]
    fn an_at_sign_after_the_hosts_is_refused_with_how_to_write_it() {
        for address in ["redis://me:123?x@h", "redis-cluster://:12/3@h", "redis://h#a@b"]
        {
            let text = refusal(address);
            assert!(text.contains("%40") && !text.contains("12"), "{text}");
        }
        assert!(clients_of("redis://me:a@b@h").is_ok());
        assert!(clients_of("redis+unix:///tmp/a@b?pass=c@d").is_ok());
    }

    #[test]
    fn what_is_wrong_is_named_unless_it_may_be_a_password() {
        for (address, why) in [
            ("redis://me:secret@h:99999", "port 99999 is not from 1 to 65535"),
            ("redis-cluster://me:secret@h:1,i:70000", "port 70000 is not"),
            ("redis://me:secret", "its port is no number"),
            ("redis://:secret@/0", "it names no host"),
            ("redis://me:secret@h/db", "its database is no number"),
            ("redis://me:secret@h?foo=1", "unknown parameter foo, it is one of ca,"),
            ("secret@h", "it has no ://"),
        ] {
            let text = refusal(address);
            assert!(text.contains(why) && !text.contains("secret"), "{address}: {text}");
        }
    }

    #[test]
    fn a_scheme_may_be_in_large_letters() {
        assert!(!clients_of("REDIS://h:1").unwrap().1);
        assert!(clients_of("Redis-Cluster://h:1").unwrap().1);
    }

    #[test]
    fn what_else_is_asked_for_is_left_in_the_address() {
        let (address, _) = split_files("redis://localhost?protocol=resp3").unwrap();
        assert_eq!(address, "redis://localhost?protocol=resp3");
    }
}
