//! Errors of Redis as errors of a store.

use redis::{ErrorKind as Cause, RedisError};
use requeue_store::{Error, ErrorKind};

/// How far a call had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There was no connection: nothing was sent.
    Connecting,
    /// It may have been sent.
    Calling,
}

/// Errors of a server that cannot execute commands at the moment.
const NOT_READY: [&str; 9] = [
    "LOADING",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "MISCONF",
    "BUSY",
    "NOREPLICAS",
    // It became a replica while a command was blocked.
    "UNBLOCKED",
    "max number of clients",
];

/// Errors of a node while a slot is migrated. The command was not executed.
const MIGRATING: [&str; 2] = ["TRYAGAIN", "ASK"];

const DENIED: [&str; 4] = ["NOAUTH", "WRONGPASS", "NOPERM", "invalid password"];

/// The TLS error for a server certificate that is not trusted.
const UNTRUSTED: &str = "invalid peer certificate";

/// The TLS error of a server that does not accept the client.
const TLS_REFUSED: &str = "received fatal alert";

/// Converts an error of Redis. `server` names the server in the message.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are alike")]
pub(crate) fn store_error(server: &str, error: RedisError, stage: Stage) -> Error {
    let kind = kind_of(&error, stage);
    let hint = match kind {
        ErrorKind::Invalid if is_io_error(&error, UNTRUSTED) => {
            "the server's certificate is not trusted; if it is your own, add ?ca=FILE with \
             the certificate of its authority to the address"
        }
        ErrorKind::Invalid if is_io_error(&error, TLS_REFUSED) => {
            "the server refused the TLS connection; if it asks for certificates, add \
             ?cert=FILE&key=FILE to the address"
        }
        ErrorKind::Unknown => "no answer, the call may have been executed",
        ErrorKind::Denied => "the server refused the user or password",
        ErrorKind::Invalid if error.code() == Some("MOVED") => {
            "the server is a node of a cluster; write its address as redis-cluster://"
        }
        ErrorKind::Unavailable if stage == Stage::Connecting => "cannot connect",
        ErrorKind::Unavailable if is_migrating(&error) => {
            "the slot is being moved to another node; nothing was changed"
        }
        ErrorKind::Unavailable => "the server is not ready",
        _ => "the server replied with an error",
    };
    Error::new(kind, format!("{server}: {hint}")).because(error)
}

fn is_io_error(error: &RedisError, text: &str) -> bool {
    error.is_io_error() && error.to_string().contains(text)
}

/// Returns whether an error has one of these codes. Errors inside a script are wrapped in
/// other text, so that is searched, too.
fn has_code(error: &RedisError, codes: &[&str]) -> bool {
    let text = error.detail().unwrap_or_default();
    codes.iter().any(|code| error.code() == Some(*code) || text.contains(code))
}

fn is_migrating(error: &RedisError) -> bool {
    error.code().is_some_and(|code| MIGRATING.contains(&code))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are alike")]
fn kind_of(error: &RedisError, stage: Stage) -> ErrorKind {
    match error.kind() {
        Cause::AuthenticationFailed => ErrorKind::Denied,
        Cause::InvalidClientConfig => ErrorKind::Invalid,
        _ if is_io_error(error, UNTRUSTED) => ErrorKind::Invalid,
        _ if is_io_error(error, TLS_REFUSED) => ErrorKind::Invalid,
        _ if has_code(error, &DENIED) => ErrorKind::Denied,
        _ if has_code(error, &NOT_READY) => ErrorKind::Unavailable,
        _ if is_migrating(error) => ErrorKind::Unavailable,
        _ if error.code() == Some("MOVED") => ErrorKind::Invalid,
        Cause::Io | Cause::Parse if stage == Stage::Calling => ErrorKind::Unknown,
        Cause::Io | Cause::Parse => ErrorKind::Unavailable,
        _ => ErrorKind::Server,
    }
}

/// Returns whether a connection cannot be used after this error.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.is_unrecoverable_error()
}

/// The error for a reply that this version does not understand.
pub(crate) fn unexpected_reply(topic: &str) -> Error {
    let text = format!("the server sent an unexpected reply about {topic}");
    Error::new(ErrorKind::Corrupt, text)
}

/// Turns the error of one part of a call into the error of the whole call: other parts may
/// have been executed.
pub(crate) fn in_part(error: Error) -> Error {
    if error.kind() != ErrorKind::Unavailable {
        return error;
    }
    let text = format!("{error}; a part of the call may have been executed");
    Error::new(ErrorKind::Unknown, text).because(error)
}
