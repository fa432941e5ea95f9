//! The TLS parameters of an address, with the meaning they have in libpq.
//!
//! | `sslmode` | encrypted | checked |
//! |---|---|---|
//! | none, `disable`, `allow` | no | |
//! | `prefer` | if the server can | nothing |
//! | `require` | yes | nothing; with `sslrootcert`, as `verify-ca` |
//! | `verify-ca` | yes | that the certificate is from a trusted authority |
//! | `verify-full` | yes | that, and that it is for this host |

use requeue_store::Error;

use crate::address::invalid;
use crate::params::Params;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    Preferred,
    Required(Verification),
}

/// The files of a client certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The TLS settings of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) encryption: Encryption,
    pub(crate) roots: Roots,
    pub(crate) identity: Option<Identity>,
}

impl Tls {
    /// Takes the TLS parameters out of an address. Leaves a `sslmode` that the driver
    /// understands, and never a weaker one.
    pub(crate) fn take(params: &mut Params) -> Result<Self, Error> {
        let root = params.take("sslrootcert");
        let mode = params.take("sslmode");
        let encryption = encryption(mode.as_deref(), root.is_some())?;
        params.push(
            "sslmode",
            match encryption {
                Encryption::None => "disable",
                Encryption::Preferred => "prefer",
                Encryption::Required(_) => "require",
            },
        );
        let roots = match root {
            Some(path) if path != "system" => Roots::File(path),
            _ => Roots::Platform,
        };
        let identity = match (params.take("sslcert"), params.take("sslkey")) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err(invalid("it has sslcert, but no sslkey")),
            (None, Some(_)) => return Err(invalid("it has sslkey, but no sslcert")),
        };
        if identity.is_some() && encryption == Encryption::None {
            return Err(invalid("it has sslcert, but its sslmode does not use TLS"));
        }
        Ok(Self { encryption, roots, identity })
    }
}

fn encryption(mode: Option<&str>, has_root: bool) -> Result<Encryption, Error> {
    let verification = match (mode.unwrap_or("disable"), has_root) {
        ("disable" | "allow", _) => return Ok(Encryption::None),
        ("prefer", _) => return Ok(Encryption::Preferred),
        ("require", false) => Verification::None,
        ("require" | "verify-ca", _) => Verification::Authority,
        ("verify-full", _) => Verification::AuthorityAndName,
        (other, _) => {
            return Err(invalid(&format!(
                "it has sslmode={other}; valid are disable, prefer, require, verify-ca and \
                 verify-full"
            )));
        }
    };
    Ok(Encryption::Required(verification))
}

#[cfg(test)]
mod tests {
    use requeue_store::ErrorKind;

    use super::*;

    fn taken(text: &str) -> (String, Tls) {
        let mut params = Params::parse(text).unwrap();
        let tls = Tls::take(&mut params).unwrap();
        (params.render(), tls)
    }

    #[test]
    fn parameters_are_taken_out_of_a_url() {
        let (rest, tls) =
            taken("postgres://me@db/app?sslmode=verify-full&sslrootcert=%2Fca.pem&a=b");
        assert_eq!(rest, "postgres://me@db/app?a=b&sslmode=require");
        let full = Encryption::Required(Verification::AuthorityAndName);
        assert_eq!((tls.encryption, tls.roots), (full, Roots::File("/ca.pem".into())));
    }

    /// Spaces around `=` or an escaped quote before `sslmode` turned TLS off.
    #[test]
    fn mode_of_a_list_is_found_behind_spaces_and_escaped_quotes() {
        for text in [
            "host=db sslmode = require",
            "host=db sslmode= 'require'",
            r"host=db password='it\'s' sslmode=require",
            r"host=db password=it\'s sslmode=require",
            "host=db\tsslmode=require",
            "postgres://db/app?ssl%6Dode=require",
        ] {
            let (rest, tls) = taken(text);
            assert_eq!(
                tls.encryption,
                Encryption::Required(Verification::None),
                "{text}"
            );
            assert!(rest.contains("require"), "{rest}");
        }
    }

    #[test]
    fn require_with_authorities_verifies_the_certificate() {
        let url = "postgres://db/app?sslmode=require&sslrootcert=system";
        let tls = taken(url).1;
        let expected = Encryption::Required(Verification::Authority);
        assert_eq!((tls.encryption, tls.roots), (expected, Roots::Platform));
    }

    #[test]
    fn unknown_mode_is_rejected_with_the_valid_ones() {
        let url = "postgres://me:secret@db/app?sslmode=verify";
        let error = Tls::take(&mut Params::parse(url).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("sslmode=verify;"), "{error}");
    }

    #[test]
    fn client_certificate_needs_its_key_and_tls() {
        for text in [
            "host=db sslmode=require sslcert=a",
            "host=db sslmode=require sslkey=a",
            "host=db sslcert=a sslkey=b",
        ] {
            let error = Tls::take(&mut Params::parse(text).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
