//! What an address says of TLS, in the words of PostgreSQL's own programs.
//!
//! | `sslmode` | encrypted | checked |
//! |---|---|---|
//! | none, `disable`, `allow` | no | |
//! | `prefer` | if the server can | nothing |
//! | `require` | yes | nothing; with `sslrootcert`, as `verify-ca` |
//! | `verify-ca` | yes | that the certificate is from a trusted authority |
//! | `verify-full` | yes | that, and that it is for this host |

use requeue_store::{Error, ErrorKind};

/// How much of a server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// Who is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Whom the machine trusts.
    Platform,
    /// The certificates in a file.
    File(String),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Plain,
    Preferred,
    Demanded(Check, Roots),
}

/// Takes what is about TLS out of an address, a URL or a list of `key=value`: the driver
/// knows only a part of it.
pub(crate) fn take(text: &str) -> Result<(String, Wish), Error> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (rest, told) = if is_url { from_url(text) } else { from_list(text) };
    Ok((rest, wish(&told)?))
}

/// The values of `sslmode` and `sslrootcert`.
#[derive(Default)]
struct Told {
    mode: Option<String>,
    root: Option<String>,
}

impl Told {
    /// Takes in a setting, if it is one of these.
    fn take(&mut self, name: &str, value: String) -> bool {
        match name {
            "sslmode" => self.mode = Some(value),
            "sslrootcert" => self.root = Some(value),
            _ => return false,
        }
        true
    }
}

fn from_url(text: &str) -> (String, Told) {
    let mut told = Told::default();
    let Some((base, query)) = text.split_once('?') else {
        return (text.to_owned(), told);
    };
    let is_other = |param: &&str| {
        param.split_once('=').is_none_or(|(name, value)| !told.take(name, decoded(value)))
    };
    let others: Vec<_> = query.split('&').filter(is_other).collect();
    let mark = if others.is_empty() { "" } else { "?" };
    (format!("{base}{mark}{}", others.join("&")), told)
}

fn from_list(text: &str) -> (String, Told) {
    let mut told = Told::default();
    let is_other = |word: &&str| {
        word.split_once('=').is_none_or(|(name, value)| {
            !told.take(name.trim(), value.trim_matches('\'').to_owned())
        })
    };
    let mut quoted = false;
    let words = text.split(|c: char| {
        quoted ^= c == '\'';
        !quoted && c.is_whitespace()
    });
    let others: Vec<_> = words.filter(is_other).collect();
    (others.join(" "), told)
}

/// A part of a URL in which `%2F` stands for a slash.
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

fn wish(told: &Told) -> Result<Wish, Error> {
    let roots = match told.root.as_deref() {
        None | Some("system") => Roots::Platform,
        Some(path) => Roots::File(path.to_owned()),
    };
    let check = match (told.mode.as_deref().unwrap_or("disable"), &told.root) {
        ("disable" | "allow", _) => return Ok(Wish::Plain),
        ("prefer", _) => return Ok(Wish::Preferred),
        ("require", None) => Check::Nothing,
        ("require" | "verify-ca", _) => Check::Authority,
        ("verify-full", _) => Check::AuthorityAndName,
        (other, _) => {
            let text = format!(
                "the address of the PostgreSQL database has sslmode={other}; it is one of \
                 disable, prefer, require, verify-ca, verify-full"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
    };
    Ok(Wish::Demanded(check, roots))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (String, Wish) {
        take(text).unwrap()
    }

    #[test]
    fn what_a_url_says_of_tls_is_taken_out_of_it() {
        let url = "postgres://me:p@db/app?connect_timeout=3&sslmode=verify-full\
                   &sslrootcert=%2Fetc%2Fmy%20ca.pem";
        let file = Roots::File("/etc/my ca.pem".to_owned());
        let wish = Wish::Demanded(Check::AuthorityAndName, file);
        assert_eq!(
            taken(url),
            ("postgres://me:p@db/app?connect_timeout=3".to_owned(), wish)
        );
        assert_eq!(
            taken("postgresql://db/app?sslmode=require"),
            (
                "postgresql://db/app".to_owned(),
                Wish::Demanded(Check::Nothing, Roots::Platform)
            )
        );
        assert_eq!(taken("postgres://db/app").1, Wish::Plain);
        assert_eq!(taken("postgres://db/app?sslmode=prefer").1, Wish::Preferred);
    }

    #[test]
    fn what_a_list_says_of_tls_is_taken_out_of_it() {
        let list = "host=db password='a b' sslmode=verify-ca sslrootcert='/my ca.pem'";
        let wish = Wish::Demanded(Check::Authority, Roots::File("/my ca.pem".to_owned()));
        assert_eq!(taken(list), ("host=db password='a b'".to_owned(), wish));
    }

    #[test]
    fn an_authority_that_is_told_is_checked_also_where_encryption_is_all_that_is_asked() {
        let url = "postgres://db/app?sslmode=require&sslrootcert=system";
        assert_eq!(taken(url).1, Wish::Demanded(Check::Authority, Roots::Platform));
    }

    #[test]
    fn an_unknown_mode_is_named_with_those_that_there_are() {
        let error = take("postgres://me:secret@db/app?sslmode=verify").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("sslmode=verify;"), "{error}");
    }
}
