//! Errors of Redis as errors of a store.

use redis::{ErrorKind as Cause, RedisError, ServerError};
use requeue_store::{Error, ErrorKind};

/// How far a call had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There was no connection: nothing was sent.
    Connecting,
    /// It may have been sent.
    Calling,
}

/// What becomes of a connection after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Keep,
    /// Another connection may lead to another server, or log in with another password.
    Reconnect,
}

use Then::{Keep, Reconnect};

/// The error replies of servers. In all of them, nothing was changed: a server checks them
/// before a script starts, or before its first write.
///
/// | code | reason | kind |
/// |---|---|---|
/// | `OOM` | `maxmemory` is reached | `Full` |
/// | `MISCONF` | the disk is full, or cannot be written | `Full` |
/// | `READONLY` | the server is a replica | `ReadOnly` |
/// | `UNBLOCKED` | it became a replica during a blocking command | `ReadOnly` |
/// | `LOADING` | it loads its data | `Unavailable` |
/// | `MASTERDOWN`, `NOREPLICAS`, `CLUSTERDOWN` | servers that it needs are down | `Unavailable` |
/// | `MOVED`, `ASK`, `TRYAGAIN` | the slot is on another node, or moves there | `Unavailable` |
/// | `BUSY`, `UNKILLABLE` | another script takes too long | `Busy` |
/// | `NOAUTH`, `WRONGPASS`, `NOPERM`, `DENIED` | user, password or permissions | `Denied` |
/// | `WRONGTYPE` | the queue was migrated to a newer version | `Version` |
const REPLIES: [(&str, ErrorKind, Then, &str); 18] = [
    ("OOM", ErrorKind::Full, Keep, "the server is out of memory"),
    ("MISCONF", ErrorKind::Full, Keep, "the server cannot write to its disk"),
    ("READONLY", ErrorKind::ReadOnly, Reconnect, "the server is a replica"),
    ("UNBLOCKED", ErrorKind::ReadOnly, Reconnect, "the server became a replica"),
    ("LOADING", ErrorKind::Unavailable, Keep, NOT_READY),
    ("MASTERDOWN", ErrorKind::Unavailable, Reconnect, NOT_READY),
    ("NOREPLICAS", ErrorKind::Unavailable, Keep, NOT_READY),
    ("CLUSTERDOWN", ErrorKind::Unavailable, Keep, NOT_READY),
    (
        "MOVED",
        ErrorKind::Unavailable,
        Keep,
        "the slot is on another node of the cluster; write the address as \
         redis-cluster://",
    ),
    ("ASK", ErrorKind::Unavailable, Keep, SLOT_MOVES),
    ("TRYAGAIN", ErrorKind::Unavailable, Keep, SLOT_MOVES),
    ("BUSY", ErrorKind::Busy, Keep, "the server is busy with a script"),
    ("UNKILLABLE", ErrorKind::Busy, Keep, "the server is busy with a script"),
    ("NOAUTH", ErrorKind::Denied, Reconnect, REFUSED),
    ("WRONGPASS", ErrorKind::Denied, Reconnect, REFUSED),
    ("NOPERM", ErrorKind::Denied, Keep, "the user lacks a permission"),
    ("DENIED", ErrorKind::Denied, Reconnect, REFUSED),
    (
        "WRONGTYPE",
        ErrorKind::Version,
        Keep,
        "the queue was migrated to a newer version, or its data was overwritten; restart \
         this program with the version that migrated it",
    ),
];

/// How errors about missing permissions inside a script start, on Redis and on Valkey.
const NO_PERMISSION: [&str; 2] =
    ["The user executing the script can't", "ACL failure in script"];

const NOT_READY: &str = "the server is not ready";

const SLOT_MOVES: &str = "the slot is being moved to another node; nothing was changed";

const REFUSED: &str = "the server refused the user or password";

/// The TLS error for a server certificate that is not trusted.
const UNTRUSTED: &str = "invalid peer certificate";

/// The TLS error of a server that does not accept the client.
const TLS_REFUSED: &str = "received fatal alert";

/// Converts an error of Redis. `server` names the server in the message.
pub(crate) fn store_error(server: &str, error: RedisError, stage: Stage) -> Error {
    let (kind, hint) = explain(&error, stage);
    Error::new(kind, format!("{server}: {hint}")).because(error)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are alike")]
fn explain(error: &RedisError, stage: Stage) -> (ErrorKind, &'static str) {
    let detail = error.detail().unwrap_or_default();
    if let Some((_, kind, _, hint)) = find(error.code().unwrap_or_default(), detail) {
        return (*kind, *hint);
    }
    let is_connecting = stage == Stage::Connecting;
    match error.kind() {
        Cause::AuthenticationFailed => (ErrorKind::Denied, REFUSED),
        Cause::InvalidClientConfig => (ErrorKind::Invalid, "the settings are not valid"),
        _ if is_io_error(error, UNTRUSTED) => (
            ErrorKind::Invalid,
            "the server's certificate is not trusted; if it is your own, add ?ca=FILE with \
             the certificate of its authority to the address",
        ),
        _ if is_io_error(error, TLS_REFUSED) => (
            ErrorKind::Invalid,
            "the server refused the TLS connection; if it asks for certificates, add \
             ?cert=FILE&key=FILE to the address",
        ),
        _ if detail.contains("invalid password") => (ErrorKind::Denied, REFUSED),
        _ if detail.contains("max number of clients") => {
            (ErrorKind::Unavailable, "the server has too many clients")
        }
        Cause::Io | Cause::Parse if is_connecting => {
            (ErrorKind::Unavailable, "cannot connect")
        }
        Cause::Io | Cause::Parse => {
            (ErrorKind::Unknown, "no answer, the call may have been executed")
        }
        _ => (ErrorKind::Server, "the server replied with an error"),
    }
}

fn is_io_error(error: &RedisError, text: &str) -> bool {
    error.is_io_error() && error.to_string().contains(text)
}

fn find(
    code: &str,
    detail: &str,
) -> Option<&'static (&'static str, ErrorKind, Then, &'static str)> {
    let code = wrapped_code(code, detail);
    REPLIES.iter().find(|(known, ..)| *known == code)
}

/// Returns the code of an error inside a script.
///
/// Redis 6 wraps it: `ERR Error running script (call to f_1): @user_script:2: -OOM command`.
/// Redis 7 and Valkey have no code for a missing permission.
fn wrapped_code<'a>(code: &'a str, detail: &'a str) -> &'a str {
    let is_denied = NO_PERMISSION.iter().any(|start| detail.starts_with(start));
    if code == "ERR" && is_denied {
        return "NOPERM";
    }
    if code != "ERR" || !detail.starts_with("Error running script") {
        return code;
    }
    let place = detail.rsplit_once("@user_script:").map(|(_, place)| place);
    let inner = place.and_then(|place| place.split_once(": ")).map(|(_, inner)| inner);
    let word = inner.and_then(|inner| inner.split(' ').next());
    word.map_or(code, |word| word.trim_start_matches('-'))
}

/// Returns whether a connection cannot be used after this error.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.is_unrecoverable_error()
}

/// Returns whether to use another connection after this reply.
pub(crate) fn needs_reconnect(error: &ServerError) -> bool {
    let found = find(error.code(), error.details().unwrap_or_default());
    found.is_some_and(|(_, _, then, _)| *then == Reconnect)
}

/// Returns whether an error is, or was caused by, an error reply with this code.
pub(crate) fn has_code(error: &Error, code: &str) -> bool {
    let source = std::error::Error::source(error);
    let cause = source.and_then(|cause| cause.downcast_ref::<RedisError>());
    cause.is_some_and(|cause| {
        wrapped_code(cause.code().unwrap_or_default(), cause.detail().unwrap_or_default())
            == code
    })
}

/// The error for a reply that this version does not understand.
pub(crate) fn unexpected_reply(topic: &str) -> Error {
    let text = format!("the server sent an unexpected reply about {topic}");
    Error::new(ErrorKind::Corrupt, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_inside_scripts_of_redis_6_are_recognized() {
        let detail = "Error running script (call to f_12): @user_script:7: @user_script: 7: -READONLY You \
                      can't write against a read only replica.";
        assert_eq!(wrapped_code("ERR", detail), "READONLY");
        let detail =
            "Error running script (call to f_1): @user_script:8: WRONGTYPE Operation";
        assert_eq!(wrapped_code("ERR", detail), "WRONGTYPE");
        assert_eq!(wrapped_code("ERR", "unknown command: -OOM"), "ERR");
        assert_eq!(wrapped_code("OOM", "command not allowed"), "OOM");
    }

    /// A text that contained a code anywhere, such as BUSYKEY, was taken for that code.
    #[test]
    fn codes_are_compared_as_a_whole() {
        assert!(find("BUSYKEY", "Target key name already exists. BUSY").is_none());
        assert_eq!(find("BUSY", "").unwrap().1, ErrorKind::Busy);
    }
}
