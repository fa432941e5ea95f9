//! What to type instead: hints for errors that do not say it themselves.

/// Returns advice about a store that cannot be opened. `scheme` is that of its address, `error`
/// the text of the error.
pub(crate) fn about_store(scheme: &str, error: &str) -> Option<&'static str> {
    let has = |parts: &[&str]| parts.iter().any(|part| error.contains(part));
    let closed =
        ["broken pipe", "reset by peer", "closed", "end of file", "unexpected eof"];
    match scheme {
        _ if has(&["onnection refused", "Name or service", "lookup address"]) => None,
        "redis" | "redis-cluster" | "redis+sentinel" | "postgres" | "postgresql"
        | "rediss" | "rediss-cluster" | "rediss+sentinel"
            if has(&["NOAUTH", "uthentication required", "requires a password"]) =>
        {
            Some(if scheme.starts_with("postgres") {
                "write postgres://USER:PASSWORD@HOST/DATABASE, or set PGPASSWORD"
            } else {
                "write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"
            })
        }
        "redis" | "redis-cluster" | "redis+sentinel"
            if has(&["arse error", "Incompatible type", "protocol"]) =>
        {
            Some("the server does not answer like Redis; check the host and the port")
        }
        "redis" | "redis-cluster" | "redis+sentinel" if has(&closed) => Some(
            "it may not be Redis (check the port), or it may require TLS (write rediss://)",
        ),
        "rediss" | "rediss-cluster" | "rediss+sentinel"
            if has(&closed) || has(&["corrupt message", "timed out", "handshake"]) =>
        {
            Some("the server may not use TLS; write redis:// if the network is trusted")
        }
        "postgres" | "postgresql" if has(&["does not support TLS"]) => {
            Some("remove sslmode from the address if the network is trusted")
        }
        "postgres" | "postgresql"
            if has(&closed) || has(&["does not answer", "communicating"]) =>
        {
            Some("it may not be PostgreSQL; check the host and the port")
        }
        _ => None,
    }
}

/// Returns advice about a verb or flag that does not exist.
pub(crate) fn about_word(word: &str) -> Option<&'static str> {
    Some(match word {
        "list" | "ls" | "keys" | "show" => {
            "requeue status shows the counts and the failing keys, requeue dead list the \
             dead keys"
        }
        "rm" | "remove" | "delete" | "del" => "requeue dead drop KEY deletes dead keys",
        "retry" | "revive" => "requeue dead revive KEY runs dead keys again",
        "work" | "worker" => {
            "requeue run --worker -- COMMAND processes keys from a store"
        }
        "top" => "requeue watch shows the state of a queue repeatedly",
        "push" | "enqueue" => "requeue add KEY adds a key to a queue in a store",
        "-I" | "-i" => {
            "{} is replaced without a flag; other placeholders are not supported"
        }
        "-L" | "-l" => "every line is one key, and every command gets one key",
        "-r" | "--no-run-if-empty" => {
            "without keys, no command runs; the flag is not needed"
        }
        "-d" | "--delimiter" => "keys are lines, or records that end with NUL with -0",
        "-t" | "--verbose" => "--dry-run prints the commands, --log FILE records them",
        "--halt" => "--max-failures N stops after N failed keys, --fail-fast after one",
        "--joblog" => "--log FILE records every run",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connection_needs_no_advice() {
        assert_eq!(about_store("redis", "cannot connect: connection refused"), None);
        assert_eq!(about_store("postgres", "connection refused"), None);
    }

    #[test]
    fn advice_depends_on_the_scheme() {
        let tls = about_store("redis", "cannot connect: broken pipe").unwrap();
        assert!(tls.contains("rediss://"), "{tls}");
        let plain = about_store("rediss", "received corrupt message").unwrap();
        assert!(plain.contains("redis://"), "{plain}");
        assert!(about_store("redis", "NOAUTH Authentication required").is_some());
    }
}
