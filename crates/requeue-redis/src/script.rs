//! The scripts that carry out the transitions, and the Redis keys that each may touch.
//!
//! A call costs the server about as much as three commands, and each key and argument that
//! it is given a third of one. So what happens most has a script of its own for a single
//! key, which is given only the parts that it needs, and does nothing if it needs more.

use std::sync::LazyLock;

use redis::Cmd;

/// The parts of a partition: what scripts call each, and the end of its Redis key.
///
/// | part | type | what it holds |
/// |---|---|---|
/// | `states` | hash | key → state, see below; and [the last lease](../scripts/lease.lua) |
/// | `ready` | list | the line of ready keys of priority 0, and [stale entries](../scripts/stale.lua) |
/// | `ranked` | sorted set | ready keys of other [priorities](../scripts/level.lua) → their place |
/// | `leases` | sorted set | key → [30 seconds before](../scripts/words.lua) the deadline of its lease |
/// | `delays` | sorted set | key → end of its delay |
/// | `failures` | hash | key → `count:error` |
/// | `dead` | hash | key → what is known of a dead key |
/// | `buried` | sorted set | key → since when it is dead |
/// | `meta` | hash | arrival time of the rate, settings, counters, owners |
/// | `wake` | sorted set | one member if somebody should look for ready keys |
/// | `stale` | hash | key → how many entries of the line are to be passed over |
///
/// A state is `Q` since when ready, deliveries if any; `P` (processing) or `D` (and dirty),
/// token, deliveries, `:` or, if it may have failures, `!`, owner; `X`, dead; or `A`,
/// deliveries, for a key that is nowhere. Times and tokens in it have 16 digits. What has
/// no state is absent. All times are in microseconds. If a key has a priority that is not 0,
/// [that](../scripts/level.lua) comes before its state, or stands in the place of none.
///
/// Keys are as [`name`](crate::name) calls them. Besides them, `states` and `leases` hold
/// [ballast](../scripts/ballast.lua), and `states` has the last lease in the field without
/// a name.
pub(crate) const PARTS: [(&str, &str); 11] = [
    ("states", "s"),
    ("ready", "r"),
    ("leases", "l"),
    ("delays", "d"),
    ("failures", "f"),
    ("dead", "x"),
    ("buried", "b"),
    ("meta", "m"),
    ("wake", "w"),
    ("stale", "z"),
    ("ranked", "p"),
];

/// The version of the records above and of the scripts that write them. A queue of another
/// one is left alone.
pub(crate) const VERSION: u32 = 3;

/// A script, and the parts that it is given the names of.
#[derive(Debug)]
pub(crate) struct Script {
    code: String,
    sha: String,
    parts: Vec<usize>,
}

impl Script {
    /// `parts` are the ones that the script may touch, by what it calls them.
    fn new(parts: &str, sources: &[&str]) -> Self {
        let names: Vec<_> = parts.split(' ').collect();
        let given: Vec<_> = (1..=names.len()).map(|n| format!("KEYS[{n}]")).collect();
        let preamble = format!("local {} = {}\n", names.join(", "), given.join(", "));
        Self::bare(parts, preamble + &sources.concat())
    }

    /// One that takes the parts from `KEYS` by itself.
    fn bare(parts: &str, code: String) -> Self {
        let place = |name| PARTS.iter().position(|(part, _)| *part == name);
        let parts = parts.split(' ').filter_map(place).collect();
        let sha = redis::Script::new(&code).get_hash().to_owned();
        Self { code, sha, parts }
    }

    /// The command that calls it in one partition; its arguments are still to come. After
    /// the names of the parts may come that of the [guard](crate::partition::guard).
    pub(crate) fn command(&self, names: &[String]) -> Cmd {
        let guard = names.get(PARTS.len());
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha).arg(self.parts.len() + usize::from(guard.is_some()));
        for part in &self.parts {
            command.arg(&names[*part]);
        }
        command.arg(guard);
        command
    }

    /// The command that makes the server know it.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.code);
        command
    }
}

macro_rules! source {
    ($($name:literal),*) => {
        &[$(include_str!(concat!("../scripts/", $name, ".lua"))),*]
    };
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident($parts:literal) = $($source:literal)*;)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($parts, source!("words" $(, $source)*)));)*

        #[cfg(test)]
        static ALL: &[&LazyLock<Script>] = &[$(&$name),*];
    };
}

macro_rules! singles {
    ($($name:ident($parts:literal) = $source:literal;)*) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::bare($parts, source!($source).concat()));)*
    };
}

singles! {
    ADD_ONE("states ready wake meta") = "add_one";
    LEASE_ONE("states ready leases") = "lease_one";
    LEASE_ONE_OF_MANY("states ready leases meta failures") = "lease_one";
    FINISH_ONE("states leases") = "finish_one";
}

scripts! {
    ADD("states ready meta wake delays dead buried stale ranked") =
        "clock" "last" "line" "add" "level" "stale" "leave" "raise" "add_end";
    ADD_LATER("states ready meta wake delays failures dead buried stale ranked") =
        "clock" "last" "line" "backoff" "delay" "add_later" "level" "stale" "leave" "raise"
        "add_later_end";
    LEASE("states ready leases delays failures dead buried meta wake stale ranked") =
        "clock" "calendar" "rare" "last" "line" "level" "stale" "grave" "due" "longest"
        "order" "lease_rare" "end" "times" "lease";
    FINISH("states ready leases delays failures dead buried meta wake ranked") =
        "rare" "clock" "last" "line" "level" "grave" "backoff" "delay" "finish_rare" "end"
        "finish";
    EXTEND("states leases meta") = "clock" "calendar" "last" "extend";
    EXPIRE("states ready leases delays failures dead buried meta wake ranked") =
        "clock" "last" "line" "level" "grave" "due" "expire";
    FORGET("states delays failures") = "forget";
    REMOVE("states ready delays failures meta wake stale ranked") =
        "last" "line" "level" "stale" "leave" "remove";
    LOOK("states ready leases delays failures dead buried meta wake ranked") =
        "clock" "last" "line" "level" "grave" "due" "look";
    STATS("states ready leases delays failures dead buried meta wake stale ranked") =
        "clock" "last" "line" "level" "stale" "grave" "due" "longest" "stats";
    FAILING("delays failures") = "clock" "failing";
    HELD("states leases") = "held";
    OWNERS("states meta") = "clock" "owners";
    DEAD("dead buried") = "clock" "dead";
    EXHUME("states ready dead buried meta wake") = "clock" "line" "exhume";
    PAUSE("states ready meta wake ranked") = "last" "pause";
    OPEN("meta") = "open";
    BALLAST("states leases") = "ballast";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_given_each_part_it_names() {
        for script in ALL {
            let code: Vec<_> = script
                .code
                .lines()
                .filter(|line| !line.trim().starts_with("--"))
                .collect();
            for (place, (part, _)) in PARTS.iter().enumerate() {
                let call = format!(", {part},");
                let last = format!(", {part})");
                let body = code[1..].join("\n");
                let named = body.contains(&call) || body.contains(&last);
                assert!(
                    !named || script.parts.contains(&place),
                    "{part} is not declared by:\n{}",
                    script.code
                );
            }
        }
    }
}
