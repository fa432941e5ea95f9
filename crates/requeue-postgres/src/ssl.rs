//! The TLS parameters of an address, with the meaning they have in libpq.
//!
//! | `sslmode` | encrypted | checked |
//! |---|---|---|
//! | none, `disable`, `allow` | no | |
//! | `prefer` | if the server can | nothing |
//! | `require` | yes | nothing; with `sslrootcert`, as `verify-ca` |
//! | `verify-ca` | yes | that the certificate is from a trusted authority |
//! | `verify-full` | yes | that, and that it is for this host |

use requeue_store::{Error, ErrorKind};

/// How the server's certificate is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    None,
    Authority,
    AuthorityAndName,
}

/// Trusted certificate authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Those of the operating system.
    Platform,
    /// The certificates in a file.
    File(String),
}

/// The encryption that an address asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    Preferred,
    Required(Verification, Roots),
}

/// Removes the TLS parameters from an address, a URL or a list of `key=value`. The driver
/// supports only some of them.
pub(crate) fn take(text: &str) -> Result<(String, Encryption), Error> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (rest, params) = if is_url { from_url(text) } else { from_list(text) };
    Ok((rest, encryption(&params)?))
}

/// The values of `sslmode` and `sslrootcert`.
#[derive(Default)]
struct TlsParams {
    mode: Option<String>,
    root: Option<String>,
}

impl TlsParams {
    /// Takes a parameter. Returns whether it is one of these.
    fn take(&mut self, name: &str, value: String) -> bool {
        match name {
            "sslmode" => self.mode = Some(value),
            "sslrootcert" => self.root = Some(value),
            _ => return false,
        }
        true
    }
}

fn from_url(text: &str) -> (String, TlsParams) {
    let mut params = TlsParams::default();
    let Some((base, query)) = text.split_once('?') else {
        return (text.to_owned(), params);
    };
    let is_other = |param: &&str| {
        param
            .split_once('=')
            .is_none_or(|(name, value)| !params.take(name, decoded(value)))
    };
    let others: Vec<_> = query.split('&').filter(is_other).collect();
    let mark = if others.is_empty() { "" } else { "?" };
    (format!("{base}{mark}{}", others.join("&")), params)
}

fn from_list(text: &str) -> (String, TlsParams) {
    let mut params = TlsParams::default();
    let is_other = |word: &&str| {
        word.split_once('=').is_none_or(|(name, value)| {
            !params.take(name.trim(), value.trim_matches('\'').to_owned())
        })
    };
    let mut quoted = false;
    let words = text.split(|c: char| {
        quoted ^= c == '\'';
        !quoted && c.is_whitespace()
    });
    let others: Vec<_> = words.filter(is_other).collect();
    (others.join(" "), params)
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let pair = more.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match byte {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &more[2..];
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn encryption(params: &TlsParams) -> Result<Encryption, Error> {
    let roots = match params.root.as_deref() {
        None | Some("system") => Roots::Platform,
        Some(path) => Roots::File(path.to_owned()),
    };
    let verification = match (params.mode.as_deref().unwrap_or("disable"), &params.root) {
        ("disable" | "allow", _) => return Ok(Encryption::None),
        ("prefer", _) => return Ok(Encryption::Preferred),
        ("require", None) => Verification::None,
        ("require" | "verify-ca", _) => Verification::Authority,
        ("verify-full", _) => Verification::AuthorityAndName,
        (other, _) => {
            let text = format!(
                "the address of the PostgreSQL database has sslmode={other}; expected \
                 disable, prefer, require, verify-ca or verify-full"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
    };
    Ok(Encryption::Required(verification, roots))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (String, Encryption) {
        take(text).unwrap()
    }

    #[test]
    fn tls_parameters_are_removed_from_a_url() {
        let url = "postgres://me:p@db/app?connect_timeout=3&sslmode=verify-full\
                   &sslrootcert=%2Fetc%2Fmy%20ca.pem";
        let file = Roots::File("/etc/my ca.pem".to_owned());
        let expected = Encryption::Required(Verification::AuthorityAndName, file);
        assert_eq!(
            taken(url),
            ("postgres://me:p@db/app?connect_timeout=3".to_owned(), expected)
        );
        assert_eq!(
            taken("postgresql://db/app?sslmode=require"),
            (
                "postgresql://db/app".to_owned(),
                Encryption::Required(Verification::None, Roots::Platform)
            )
        );
        assert_eq!(taken("postgres://db/app").1, Encryption::None);
        assert_eq!(taken("postgres://db/app?sslmode=prefer").1, Encryption::Preferred);
    }

    #[test]
    fn tls_parameters_are_removed_from_a_list() {
        let list = "host=db password='a b' sslmode=verify-ca sslrootcert='/my ca.pem'";
        let expected = Encryption::Required(
            Verification::Authority,
            Roots::File("/my ca.pem".to_owned()),
        );
        assert_eq!(taken(list), ("host=db password='a b'".to_owned(), expected));
    }

    #[test]
    fn require_with_an_authority_verifies_it() {
        let url = "postgres://db/app?sslmode=require&sslrootcert=system";
        assert_eq!(
            taken(url).1,
            Encryption::Required(Verification::Authority, Roots::Platform)
        );
    }

    #[test]
    fn unknown_mode_is_rejected_with_the_valid_ones() {
        let error = take("postgres://me:secret@db/app?sslmode=verify").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("sslmode=verify;"), "{error}");
    }
}
