//! What an error of the server or of the connection means to a queue.

use redis::{ErrorKind as Cause, RedisError};
use requeue_store::{Error, ErrorKind};

/// How far a call had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There was no connection yet: nothing was sent.
    Connecting,
    /// It may have been sent.
    Calling,
}

/// What the server says when it cannot carry out anything for now.
const NOT_NOW: [&str; 9] = [
    "LOADING",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "MISCONF",
    "BUSY",
    "NOREPLICAS",
    // It has become a replica while somebody waited.
    "UNBLOCKED",
    "max number of clients",
];

/// What a node says while a slot is on its way to another, before anything is done.
const MOVES: [&str; 2] = ["TRYAGAIN", "ASK"];

/// What it says to those it does not trust.
const REFUSED: [&str; 4] = ["NOAUTH", "WRONGPASS", "NOPERM", "invalid password"];

/// What TLS says of a certificate that it does not accept, and of a server that does not
/// accept ours.
const UNTRUSTED: &str = "invalid peer certificate";
const TLS_REFUSED: &str = "received fatal alert";

/// The error of a queue for an error of the server; `what` was tried.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not told apart")]
pub(crate) fn fault(what: &str, error: RedisError, stage: Stage) -> Error {
    let kind = kind_of(&error, stage);
    let hint = match kind {
        ErrorKind::Invalid if failed_by(&error, UNTRUSTED) => {
            "the server's certificate is not trusted; add ?ca=FILE to the address, with \
             the certificate of who signed it, if it is yours"
        }
        ErrorKind::Invalid if failed_by(&error, TLS_REFUSED) => {
            "the server refused the TLS connection; if it asks for certificates, add \
             ?cert=FILE&key=FILE to the address"
        }
        ErrorKind::Unknown => "no answer came, and it may have been carried out",
        ErrorKind::Denied => "the server refuses this user or password",
        ErrorKind::Invalid if error.code() == Some("MOVED") => {
            "the server is a node of a cluster; write its address as redis-cluster://"
        }
        ErrorKind::Unavailable if stage == Stage::Connecting => "cannot connect",
        ErrorKind::Unavailable if moves(&error) => {
            "the slot is being moved to another node; nothing is done until it is there"
        }
        ErrorKind::Unavailable => "the server is not ready",
        _ => "the server answered with an error",
    };
    Error::new(kind, format!("{what}: {hint}")).because(error)
}

/// Whether a connection failed with these words.
fn failed_by(error: &RedisError, words: &str) -> bool {
    error.is_io_error() && error.to_string().contains(words)
}

fn says(error: &RedisError, words: &[&str]) -> bool {
    let text = error.detail().unwrap_or_default();
    words.iter().any(|word| error.code() == Some(*word) || text.contains(word))
}

fn moves(error: &RedisError) -> bool {
    error.code().is_some_and(|code| MOVES.contains(&code))
}

/// What sort of error it is.
///
/// Errors inside a script come with its own words around them, so the text is searched.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not told apart")]
pub(crate) fn kind_of(error: &RedisError, stage: Stage) -> ErrorKind {
    match error.kind() {
        Cause::AuthenticationFailed => ErrorKind::Denied,
        Cause::InvalidClientConfig => ErrorKind::Invalid,
        _ if failed_by(error, UNTRUSTED) => ErrorKind::Invalid,
        _ if failed_by(error, TLS_REFUSED) => ErrorKind::Invalid,
        _ if says(error, &REFUSED) => ErrorKind::Denied,
        _ if says(error, &NOT_NOW) => ErrorKind::Unavailable,
        _ if moves(error) => ErrorKind::Unavailable,
        _ if error.code() == Some("MOVED") => ErrorKind::Invalid,
        Cause::Io | Cause::Parse if stage == Stage::Calling => ErrorKind::Unknown,
        Cause::Io | Cause::Parse => ErrorKind::Unavailable,
        _ => ErrorKind::Server,
    }
}

/// Whether the connection is of no more use.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.is_unrecoverable_error()
}

/// What a script answered is not what it answers.
pub(crate) fn senseless(what: &str) -> Error {
    let text = format!("the server's answer about {what} makes no sense to this version");
    Error::new(ErrorKind::Corrupt, text)
}
