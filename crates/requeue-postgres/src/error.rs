//! Classifies errors of the driver and the server.

use std::error::Error as StdError;

use requeue_store::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

use crate::address::Address;

/// Classifies an error of connecting. Nothing was sent yet.
pub(crate) fn of_connecting(error: tokio_postgres::Error, address: &Address) -> Error {
    let (kind, text) = match error.code() {
        Some(code) if is_refusal(code) => {
            let user = address.user();
            (
                ErrorKind::Denied,
                format!("PostgreSQL at {address} rejects the user {user:?}"),
            )
        }
        Some(&SqlState::INVALID_CATALOG_NAME) => {
            let database = address.database();
            let text = format!("PostgreSQL at {address} has no database {database:?}");
            (ErrorKind::Invalid, text)
        }
        Some(code) if !is_passing(code) => {
            (ErrorKind::Server, format!("PostgreSQL at {address} rejects the connection"))
        }
        _ if refused_certificate(&error).is_some() => {
            let why = refused_certificate(&error).unwrap_or_default();
            let text = format!(
                "the certificate of PostgreSQL at {address} is not trusted: {why}; set \
                 sslrootcert to the certificate of its authority, or use the host name \
                 in the certificate"
            );
            (ErrorKind::Denied, text)
        }
        _ if says(&error, "does not support TLS") => {
            let text = format!(
                "PostgreSQL at {address} does not support TLS, which sslmode requires"
            );
            (ErrorKind::Invalid, text)
        }
        _ if says(&error, "password") => {
            let advice = address.password_advice();
            let text = format!("PostgreSQL at {address} requires a password{advice}");
            (ErrorKind::Denied, text)
        }
        _ => (ErrorKind::Unavailable, format!("cannot reach PostgreSQL at {address}")),
    };
    Error::new(kind, text).because(error)
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
        Some(code) if is_ending(code) => {
            (ErrorKind::Unknown, "the server closed the connection before it answered")
        }
        Some(code) if is_refusal(code) => (ErrorKind::Denied, "permission denied"),
        Some(code) if is_gone(code) => {
            (ErrorKind::Corrupt, "the tables or functions of requeue do not exist")
        }
        Some(&SqlState::LOCK_NOT_AVAILABLE) => (
            ErrorKind::Busy,
            "an open transaction has locked a key of the batch, or the queue",
        ),
        Some(code) if is_passing(code) => {
            (ErrorKind::Unavailable, "the server is temporarily unable to answer")
        }
        Some(_) => (ErrorKind::Server, "the server failed"),
    };
    Error::new(kind, format!("{name} on {place}: {what}")).because(error)
}

/// Returns the error of a call without an answer. The server may still execute it.
pub(crate) fn of_silence(name: &str, place: &str) -> Error {
    Error::new(ErrorKind::Unknown, format!("{name} on {place}: no answer in time"))
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
    error.code().is_some_and(is_gone)
}

fn is_gone(code: &SqlState) -> bool {
    matches!(
        *code,
        SqlState::UNDEFINED_TABLE
            | SqlState::UNDEFINED_FUNCTION
            | SqlState::UNDEFINED_COLUMN
            | SqlState::INVALID_SCHEMA_NAME
    )
}

fn is_refusal(code: &SqlState) -> bool {
    // Class 28: invalid authorization.
    code.code().starts_with("28") || *code == SqlState::INSUFFICIENT_PRIVILEGE
}

fn is_ending(code: &SqlState) -> bool {
    matches!(*code, SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN)
        || code.code() == "57P05"
}

/// Returns whether the cause is temporary: the server starts, stops, is full or a read-only
/// replica, or undid a call that took too long. Nothing changed.
fn is_passing(code: &SqlState) -> bool {
    // Classes 08 and 53: connections, and resources.
    code.code().starts_with("08")
        || code.code().starts_with("53")
        || is_ending(code)
        || matches!(
            *code,
            SqlState::CANNOT_CONNECT_NOW
                | SqlState::READ_ONLY_SQL_TRANSACTION
                | SqlState::QUERY_CANCELED
                | SqlState::LOCK_NOT_AVAILABLE
        )
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
