//! Classifies errors of the driver and the server.

use std::error::Error as StdError;

use requeue_store::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

use crate::address::Address;

/// How SQLSTATEs are handled: the first entry that the code starts with counts. The
/// [class](ErrorKind) of the kind decides what callers do.
const CODES: [(&str, ErrorKind, &str); 25] = [
    ("40001", ErrorKind::Busy, "it collided with another transaction"),
    ("40P01", ErrorKind::Busy, "it was in a deadlock with another transaction"),
    ("55P03", ErrorKind::Busy, "an open transaction has locked the key, or the queue"),
    ("57014", ErrorKind::Busy, "the server cancelled it, because it took too long"),
    ("53100", ErrorKind::Full, "the disk of the server is full"),
    ("53200", ErrorKind::Full, "the server is out of memory"),
    ("53300", ErrorKind::Unavailable, "the server has too many connections"),
    ("53", ErrorKind::Unavailable, "the server lacks resources"),
    ("25006", ErrorKind::ReadOnly, "the server accepts no writes; it may be a standby"),
    ("57P01", ErrorKind::Unknown, "the server closed the connection before it answered"),
    ("57P02", ErrorKind::Unknown, "the server closed the connection before it answered"),
    ("57P03", ErrorKind::Unavailable, "the server is starting or stopping"),
    ("57P05", ErrorKind::Unknown, "the server closed the connection before it answered"),
    ("25P03", ErrorKind::Unknown, "the server closed the connection before it answered"),
    ("25P04", ErrorKind::Unknown, "the server closed the connection before it answered"),
    ("08", ErrorKind::Unknown, "the connection failed before the answer arrived"),
    ("28", ErrorKind::Denied, "the user or the password is wrong"),
    ("42501", ErrorKind::Denied, "permission denied"),
    ("3D000", ErrorKind::Invalid, "the database does not exist"),
    ("26000", ErrorKind::Invalid, POOLER),
    ("42P05", ErrorKind::Invalid, POOLER),
    ("42883", ErrorKind::Corrupt, GONE),
    ("42P01", ErrorKind::Corrupt, GONE),
    ("42703", ErrorKind::Corrupt, GONE),
    ("3F000", ErrorKind::Corrupt, GONE),
];

const GONE: &str = "the tables or functions of requeue do not exist";

const POOLER: &str = "a prepared statement is missing; if a pooler assigns connections by \
                      transaction, add pgbouncer=true to the address";

/// Returns the entry of a code.
fn of_code(code: &str) -> (ErrorKind, &'static str) {
    let found = CODES.iter().find(|(prefix, ..)| code.starts_with(prefix));
    found
        .map_or((ErrorKind::Server, "the server failed"), |&(_, kind, what)| (kind, what))
}

/// Classifies an error of connecting. Nothing was sent yet.
pub(crate) fn of_connecting(error: tokio_postgres::Error, address: &Address) -> Error {
    let (kind, what) = match error.code() {
        None => of_driver(&error, address),
        Some(code) => match of_code(code.code()) {
            (ErrorKind::Denied, _) => {
                (ErrorKind::Denied, format!("rejects the user {:?}", address.user()))
            }
            (ErrorKind::Invalid, _) => {
                (ErrorKind::Invalid, format!("has no database {:?}", address.database()))
            }
            (ErrorKind::Unknown | ErrorKind::Busy, what) => {
                (ErrorKind::Unavailable, format!("rejects the connection: {what}"))
            }
            (kind, what) => (kind, format!("rejects the connection: {what}")),
        },
    };
    let text = if what.is_empty() {
        format!("cannot reach PostgreSQL at {address}")
    } else {
        format!("PostgreSQL at {address} {what}")
    };
    Error::new(kind, text).because(error)
}

/// Classifies an error that the driver found: it has no code.
fn of_driver(error: &tokio_postgres::Error, address: &Address) -> (ErrorKind, String) {
    if let Some(why) = refused_certificate(error) {
        let text = format!(
            "has a certificate that is not trusted: {why}; set sslrootcert to the \
             certificate of its authority, or use the host name in the certificate"
        );
        return (ErrorKind::Denied, text);
    }
    if says(error, "does not support TLS") {
        return (
            ErrorKind::Invalid,
            "does not support TLS, which sslmode requires".into(),
        );
    }
    if says(error, "does not allow writes") {
        return (ErrorKind::ReadOnly, "accepts no writes; it may be a standby".into());
    }
    if says(error, "password") {
        let advice = address.password_advice();
        return (ErrorKind::Denied, format!("requires a password{advice}"));
    }
    (ErrorKind::Unavailable, String::new())
}

/// Returns the error for a server that accepts connections and does not answer.
pub(crate) fn of_silent_server(address: &Address) -> Error {
    let text = format!("PostgreSQL at {address} does not answer");
    Error::new(ErrorKind::Unavailable, text)
}

/// Classifies the error of a call.
pub(crate) fn of_call(error: tokio_postgres::Error, name: &str, place: &str) -> Error {
    let (kind, what) = match error.code() {
        None => (ErrorKind::Unknown, "the connection was lost before the answer arrived"),
        Some(code) => of_code(code.code()),
    };
    Error::new(kind, format!("{name} on {place}: {what}")).because(error)
}

/// Returns the error of a call without an answer. The server may still execute it.
pub(crate) fn of_silence(name: &str, place: &str) -> Error {
    Error::new(ErrorKind::Unknown, format!("{name} on {place}: no answer in time"))
}

/// Returns the error of a call whose function a newer program has removed.
///
/// It is transient: the worker waits until it is replaced, and its keys are not lost.
pub(crate) fn of_newer_schema(
    error: tokio_postgres::Error,
    name: &str,
    place: &str,
    version: i32,
) -> Error {
    let text = format!(
        "{name} on {place}: the schema was migrated to version {version}, which this program \
         does not support; restart the newer program in its place"
    );
    Error::new(ErrorKind::Unavailable, text).because(error)
}

/// Returns whether the server undid a call because of a deadlock or a conflict, so that it
/// may succeed if it is repeated at once.
pub(crate) fn is_collision(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
    )
}

/// Returns whether the server undid a call because it waited too long for a lock.
pub(crate) fn is_lock_timeout(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Returns whether a table, a function or a schema does not exist.
pub(crate) fn is_absence(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| of_code(code.code()).0 == ErrorKind::Corrupt)
}

/// Returns whether the cause of an error contains `what`: the driver has no code for it.
fn says(error: &tokio_postgres::Error, what: &str) -> bool {
    error.source().is_some_and(|cause| cause.to_string().contains(what))
}

#[cfg(feature = "tls")]
fn refused_certificate(error: &tokio_postgres::Error) -> Option<String> {
    error.source().and_then(crate::tls::refusal).map(ToString::to_string)
}

#[cfg(not(feature = "tls"))]
fn refused_certificate(_: &tokio_postgres::Error) -> Option<String> {
    None
}
