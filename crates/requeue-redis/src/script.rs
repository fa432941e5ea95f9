//! The Lua scripts, and the Redis keys that each of them uses.
//!
//! Every change of a key is one call of a script, which Redis executes atomically.
//!
//! A call costs the server about as much as three commands, and every Redis key or argument
//! a fifth of one. So a call for a single key first tries a [short script](crate::single) that
//! handles only the usual case.

use std::sync::LazyLock;

use redis::Cmd;

/// The Redis keys of a partition: the name in the scripts, and the end of the Redis key.
///
/// | part | type | content |
/// |---|---|---|
/// | `records` | hash | key → [record](crate::record) |
/// | `ready` | list | ready keys of priority 0 [in order](../scripts/lib/ready.lua), and [stale entries](../scripts/lib/stale.lua) |
/// | `compacted` | list | during a compaction of `ready`, the entries before it |
/// | `ranked` | sorted set | ready keys of other priorities, by [priority and order](../scripts/lib/ready.lua) |
/// | `leases` | sorted set | processing keys → deadline of the lease |
/// | `delays` | sorted set | delayed keys → end of the delay |
/// | `errors` | hash | failing keys → last error; dead keys → reason |
/// | `dead` | sorted set | dead keys → time of death |
/// | `meta` | hash | settings, last token, counters, when each owner was last seen |
/// | `wake` | sorted set | one member if a waiting process should look for keys |
///
/// All times are in microseconds. `records` and `leases` also hold
/// [ballast](../scripts/ballast.lua).
///
/// # Invariants
///
/// 1. A key has a record exactly if it is ready, processing, delayed, failing or dead.
/// 2. `leases`, `delays` and `dead` hold exactly the keys whose records say so, and `errors`
///    exactly the failing and dead keys.
/// 3. A ready key of priority 0 has exactly one entry in `ready` that is not stale; one of
///    another priority is in `ranked`. `ready` does not exist if no key of priority 0 is ready.
///    The same holds for `ready` and `compacted` together during a compaction.
/// 4. A record has a priority exactly if its key is pending: ready, dirty or delayed.
/// 5. A dead key is not delayed.
pub(crate) const PARTS: [(&str, &str); 10] = [
    ("records", "k"),
    ("ready", "r"),
    ("compacted", "c"),
    ("ranked", "p"),
    ("leases", "l"),
    ("delays", "d"),
    ("errors", "e"),
    ("dead", "x"),
    ("meta", "m"),
    ("wake", "w"),
];

/// The version of the data above. It is part of all names, see [`crate::partition`].
pub(crate) const VERSION: u32 = 5;

#[derive(Debug)]
pub(crate) struct Script {
    code: String,
    sha: String,
    /// Indexes into [`PARTS`].
    parts: Vec<usize>,
}

impl Script {
    /// Creates a script in which each part is a local variable.
    fn new(parts: &str, sources: &[&str]) -> Self {
        if parts.is_empty() {
            return Self::short(parts, &sources.concat());
        }
        let names: Vec<_> = parts.split(' ').collect();
        let values: Vec<_> = (1..=names.len()).map(|n| format!("KEYS[{n}]")).collect();
        let locals = format!("local {} = {}\n", names.join(", "), values.join(", "));
        Self::short(parts, &(locals + &sources.concat()))
    }

    /// Creates a script that reads `KEYS` itself.
    fn short(parts: &str, code: &str) -> Self {
        let index = |name| PARTS.iter().position(|(part, _)| *part == name);
        let parts = parts.split(' ').filter_map(index).collect();
        let sha = redis::Script::new(code).get_hash().to_owned();
        Self { code: code.to_owned(), sha, parts }
    }

    /// Returns the command that calls the script in one partition, without arguments.
    ///
    /// `names` are the Redis keys of the partition, and maybe its
    /// [guard](crate::partition::guard). `more` are Redis keys that are not parts.
    pub(crate) fn command(&self, names: &[String], more: &[String]) -> Cmd {
        let guard = names.get(PARTS.len());
        let count = self.parts.len() + more.len() + usize::from(guard.is_some());
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha).arg(count);
        for part in &self.parts {
            command.arg(&names[*part]);
        }
        command.arg(more).arg(guard);
        command
    }

    /// Returns the command that loads the script into the server.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.code);
        command
    }
}

macro_rules! source {
    ($name:literal) => {
        include_str!(concat!("../scripts/", $name, ".lua"))
    };
}

macro_rules! scripts {
    ($($name:ident($parts:literal) = $($source:literal)*;)*) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($parts, &[source!("lib/base"), $(source!($source)),*]));)*

        #[cfg(test)]
        static ALL: &[&LazyLock<Script>] = &[$(&$name),*];
    };
}

macro_rules! short_scripts {
    ($($name:ident($parts:literal) = $source:literal;)*) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::short($parts, source!($source)));)*
    };
}

short_scripts! {
    ADD_ONE("records ready meta wake") = "one/add";
    LEASE_ONE("records ready ranked leases delays meta") = "one/lease";
    FINISH_ONE("records leases") = "one/finish";
    MIGRATE("") = "migrate";
}

scripts! {
    ADD("records ready compacted ranked delays errors dead meta wake") =
        "lib/clock" "lib/record" "lib/ready" "lib/stale" "lib/delay" "lib/rate" "lib/backoff"
        "add";
    LEASE("records ready compacted ranked leases delays errors dead meta wake") =
        "lib/full" "lib/clock" "lib/record" "lib/ready" "lib/stale" "lib/delay" "lib/failures"
        "lib/bury" "lib/due" "lib/expired" "lib/oldest" "lease";
    FINISH("records ready ranked leases delays errors dead meta wake") =
        "lib/full" "lib/clock" "lib/record" "lib/ready" "lib/delay" "lib/failures" "lib/rate"
        "lib/backoff" "lib/bury" "finish";
    EXTEND("records leases meta") = "lib/full" "lib/clock" "extend";
    EXPIRE("records ready ranked leases delays errors dead meta wake") =
        "lib/full" "lib/clock" "lib/record" "lib/ready" "lib/delay" "lib/failures" "lib/bury"
        "lib/due" "lib/expired" "expire";
    FORGET("records errors") = "lib/record" "forget";
    REMOVE("records ready compacted ranked delays meta") =
        "lib/record" "lib/stale" "remove";
    LOOK("records ready ranked delays meta wake") =
        "lib/clock" "lib/record" "lib/ready" "lib/due" "look";
    STATS("records ready compacted ranked leases delays errors dead meta wake") =
        "lib/clock" "lib/record" "lib/ready" "lib/stale" "lib/due" "lib/oldest" "stats";
    FAILING("records delays errors") = "lib/clock" "failing";
    LEASES("records leases") = "leases";
    OWNERS("meta") = "lib/clock" "owners";
    DEAD("records errors dead") = "lib/clock" "dead";
    EXHUME("records ready ranked errors dead meta wake") =
        "lib/clock" "lib/record" "lib/ready" "exhume";
    PAUSE("ready ranked meta wake") = "pause";
    OPEN("meta") = "open";
    BALLAST("records leases") = "ballast";
    TAKE("") = "lib/clock" "lib/rate" "take";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether some code passes a part to a command or a function.
    fn uses(code: &str, part: &str) -> bool {
        let mut code = code.lines().filter(|line| !line.trim().starts_with("--"));
        let ways = [format!(", {part},"), format!(", {part})"), format!("({part})")];
        code.any(|line| ways.iter().any(|way| line.contains(way.as_str())))
    }

    #[test]
    fn scripts_declare_the_parts_they_use() {
        for script in ALL {
            let (_, body) = script.code.split_once('\n').unwrap();
            for (index, (part, _)) in PARTS.iter().enumerate() {
                let declared = script.parts.contains(&index);
                assert!(declared || !uses(body, part), "{part} in:\n{}", script.code);
            }
        }
    }
}
