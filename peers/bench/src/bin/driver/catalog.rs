//! The scenarios and systems in words, in the order of the tables.

/// How the systems of a scenario are compared.
#[derive(Clone, Copy, PartialEq)]
pub enum Figure {
    /// CPU time of the whole process, per operation.
    Cpu,
    /// Wall time per operation.
    Wall,
    /// Median wall time of one key.
    Latency,
    /// Live heap per key, in bytes.
    Memory,
}

impl Figure {
    pub fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time, ns",
            Self::Wall => "wall time, ns",
            Self::Latency => "median, µs",
            Self::Memory => "bytes",
        }
    }
}

/// Scenarios that share one table.
pub struct Group {
    pub title: &'static str,
    pub figure: Figure,
    /// The id and the title of each scenario.
    pub scenarios: &'static [(&'static str, &'static str)],
}

pub const GROUPS: &[Group] = &[
    Group {
        title: "One key at a time, on one thread",
        figure: Figure::Cpu,
        scenarios: &[
            ("cycle.u64.1k", "add, get, finish; u64 keys, 1,000 different"),
            ("cycle.u64.1M", "add, get, finish; u64 keys, a million different"),
            ("cycle.str.1k", "add, get, finish; strings of 33 bytes, 1,000 different"),
            (
                "cycle.str.1M",
                "add, get, finish; strings of 33 bytes, a million different",
            ),
            ("dup.u64", "add a queued key; u64"),
            ("dup.str", "add a queued key; borrowed string of 33 bytes"),
        ],
    },
    Group {
        title: "A full queue, on one thread",
        figure: Figure::Cpu,
        scenarios: &[
            ("fill.u64.1k", "add 1,000 keys, then get and finish all; u64"),
            ("fill.u64.1M", "add a million keys, then get and finish all; u64"),
            ("fill.str.1k", "add 1,000 keys, then get and finish all; strings"),
            ("fill.str.1M", "add a million keys, then get and finish all; strings"),
            ("churn.u64", "replace the oldest of 200,000 keys by a new one; u64"),
            ("churn.u64.late", "the same after two million replacements; u64"),
        ],
    },
    Group {
        title: "Producers and consumers on several threads",
        figure: Figure::Wall,
        scenarios: &[
            ("throughput.1p1c", "1 producer, 1 consumer"),
            ("throughput.2p2c", "2 producers, 2 consumers"),
            ("throughput.8p8c", "8 producers, 8 consumers"),
        ],
    },
    Group {
        title: "Waiting time of a key",
        figure: Figure::Latency,
        scenarios: &[
            ("latency.single", "from add to get; one key every 20 µs"),
            ("latency.burst", "from add to get; 100 keys every millisecond"),
            ("lateness.1k", "from the end of a delay to get; 1,000 delayed keys"),
            ("lateness.100k", "from the end of a delay to get; 100,000 delayed keys"),
        ],
    },
    Group {
        title: "Delays and retries",
        figure: Figure::Cpu,
        scenarios: &[
            ("delay.insert.u64", "add_after, up to a million delayed keys; u64"),
            ("delay.insert.str", "add_after, up to a million delayed keys; strings"),
            ("retry.limited.u64", "add_rate_limited and forget, default policy; u64"),
            ("retry.first.u64", "exponential policy alone, first failure; u64"),
            ("retry.repeat.u64", "exponential policy alone, second failure; u64"),
            ("retry.forget.u64", "exponential policy alone, forget; u64"),
            ("retry.first.str", "exponential policy alone, first failure; strings"),
            ("retry.repeat.str", "exponential policy alone, second failure; strings"),
        ],
    },
    Group {
        title: "Rate limiters",
        figure: Figure::Cpu,
        scenarios: &[
            ("limit.allow.1t", "allow, granted; 1 thread"),
            ("limit.allow.2t", "allow, granted; 2 threads"),
            ("limit.deny.1t", "allow, refused; 1 thread"),
            ("limit.deny.2t", "allow, refused; 2 threads"),
            ("limit.reserve.1t", "reserve; 1 thread"),
            ("limit.reserve.2t", "reserve; 2 threads"),
            ("pacer.take.1t", "pacer, take without waiting; 1 thread"),
            ("pacer.take.2t", "pacer, take without waiting; 2 threads"),
            ("keyed.1k", "keyed limiter, 1,000 keys"),
            ("keyed.1M", "keyed limiter, a million keys"),
        ],
    },
    Group {
        title: "Memory",
        figure: Figure::Memory,
        scenarios: &[
            ("memory.ready.u64", "one of a million ready keys; u64"),
            ("memory.ready.str", "one of a million ready keys; strings"),
            ("memory.delayed.u64", "one of a million delayed keys; u64"),
            ("memory.delayed.str", "one of a million delayed keys; strings"),
            ("memory.retry.u64", "one of a million keys in the exponential policy; u64"),
            ("memory.idle", "a queue with one delayed key"),
        ],
    },
    Group {
        title: "Primitives",
        figure: Figure::Cpu,
        scenarios: &[
            ("primitive.now", "read the clock"),
            ("primitive.lock", "lock and unlock a mutex without contention"),
        ],
    },
];

/// The id and the name of each system, in the order of the columns.
const SYSTEMS: [(&str, &str); 20] = [
    ("go-client-go", "client-go"),
    ("go-x-rate", "x/time/rate"),
    ("go-uber", "Uber ratelimit"),
    ("go-std", "Go"),
    ("rust-std", "Rust"),
    ("requeue", "requeue"),
    ("requeue-next", "requeue, `next()`"),
    ("requeue-batch64", "requeue, batches of 64"),
    ("requeue-async", "requeue, async"),
    ("requeue-metrics", "requeue, with metrics"),
    ("go-controller-runtime", "controller-runtime"),
    ("kube-scheduler", "kube-runtime"),
    ("tokio-delay-queue", "tokio DelayQueue"),
    ("kanal", "kanal"),
    ("flume", "flume"),
    ("crossbeam", "crossbeam"),
    ("governor", "governor"),
    ("governor-std", "governor, system clock"),
    ("ratelimit", "ratelimit"),
    ("leaky-bucket", "leaky-bucket"),
];

pub fn group_of(scenario: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.scenarios.iter().any(|(id, _)| *id == scenario))
}

pub fn title_of(scenario: &str) -> Option<&'static str> {
    let mut scenarios = GROUPS.iter().flat_map(|group| group.scenarios);
    scenarios.find(|(id, _)| *id == scenario).map(|(_, title)| *title)
}

/// Returns the name of a system, or its id if it has none.
pub fn name_of(system: &str) -> &str {
    let named = SYSTEMS.iter().find(|(id, _)| *id == system);
    named.map_or(system, |(_, name)| name)
}

/// Returns the position of a system in the tables.
pub fn system_position(system: &str) -> usize {
    SYSTEMS.iter().position(|(id, _)| *id == system).unwrap_or(SYSTEMS.len())
}

/// Returns the position of a scenario in the tables.
pub fn position_of(scenario: &str) -> Option<usize> {
    let mut scenarios = GROUPS.iter().flat_map(|group| group.scenarios);
    scenarios.position(|(id, _)| *id == scenario)
}

pub fn is_ours(system: &str) -> bool {
    system.starts_with("requeue")
}

/// Returns whether a system is the Go original of its scenario. controller-runtime's queue is
/// a peer, not an original.
pub fn is_original(system: &str) -> bool {
    ["go-client-go", "go-x-rate", "go-uber", "go-std"].contains(&system)
}
