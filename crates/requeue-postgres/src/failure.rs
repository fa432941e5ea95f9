//! What an error of the driver or the server means to a queue.

use std::error::Error as StdError;

use requeue_store::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

use crate::address::Address;

/// An error while a connection was being made: nothing was asked for yet.
pub(crate) fn of_connecting(error: tokio_postgres::Error, address: &Address) -> Error {
    let (kind, text) = match error.code() {
        Some(code) if is_refusal(code) => {
            let user = address.user();
            (
                ErrorKind::Denied,
                format!("PostgreSQL at {address} refuses the user {user:?}"),
            )
        }
        Some(&SqlState::INVALID_CATALOG_NAME) => {
            let database = address.database();
            let text = format!("PostgreSQL at {address} has no database {database:?}");
            (ErrorKind::Invalid, text)
        }
        Some(code) if !is_passing(code) => {
            (ErrorKind::Server, format!("PostgreSQL at {address} refuses the connection"))
        }
        _ if refused_certificate(&error).is_some() => {
            let why = refused_certificate(&error).unwrap_or_default();
            let text = format!(
                "the certificate of PostgreSQL at {address} is not accepted: {why}; name \
                 the file of its authority with sslrootcert, or the host that it is for"
            );
            (ErrorKind::Denied, text)
        }
        _ if says(&error, "does not support TLS") => {
            let text = format!(
                "PostgreSQL at {address} does not speak TLS, which sslmode demands"
            );
            (ErrorKind::Invalid, text)
        }
        _ if says(&error, "password") => {
            let text =
                format!("PostgreSQL at {address} asks for a password: none is told");
            (ErrorKind::Denied, text)
        }
        _ => (ErrorKind::Unavailable, format!("cannot reach PostgreSQL at {address}")),
    };
    Error::new(kind, text).because(error)
}

/// An error of a call that was sent.
pub(crate) fn of_call(error: tokio_postgres::Error, name: &str, place: &str) -> Error {
    let (kind, what) = match error.code() {
        None => (ErrorKind::Unknown, "the connection was lost before the answer"),
        Some(code) if is_ending(code) => {
            (ErrorKind::Unknown, "the server ended the connection before the answer")
        }
        Some(code) if is_refusal(code) => {
            (ErrorKind::Denied, "the user has no right to do that")
        }
        Some(code) if is_gone(code) => {
            (ErrorKind::Corrupt, "the tables or functions of requeue are not there")
        }
        Some(&SqlState::LOCK_NOT_AVAILABLE) => (
            ErrorKind::Busy,
            "a transaction that is open holds a key of it, or the whole queue",
        ),
        Some(code) if is_passing(code) => {
            (ErrorKind::Unavailable, "the server cannot now")
        }
        Some(_) => (ErrorKind::Server, "the server failed"),
    };
    Error::new(kind, format!("{name} on {place}: {what}")).because(error)
}

/// No answer in time. The server may still carry the call out.
pub(crate) fn of_silence(name: &str, place: &str) -> Error {
    Error::new(ErrorKind::Unknown, format!("{name} on {place}: no answer in time"))
}

/// Whether the same call, sent again at once, may well succeed: the server has undone it
/// since it stood in the way of another.
pub(crate) fn is_collision(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
    )
}

/// Whether the server has undone a call since it waited too long for a lock.
pub(crate) fn is_held_up(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether the error says that something asked for does not exist.
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

/// Whether it passes by itself: the server starts, stops, is full or only a copy now, or
/// has undone a call that took too long. Nothing was changed.
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

/// Whether the cause of an error says this: the driver has no other way to tell.
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
