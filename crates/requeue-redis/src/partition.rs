//! The partition of a key, and the Redis keys of a partition.

use crate::script::{PARTS, VERSION};

/// The parts of version 4, whose names had no version.
const OLD_PARTS: [&str; 9] = ["m", "k", "r", "p", "l", "d", "e", "x", "w"];

/// Returns the Redis keys of one partition, in the order of [`PARTS`].
pub(crate) fn names(queue: &str, partition: usize) -> Vec<String> {
    PARTS.iter().map(|(_, end)| name(queue, partition, end)).collect()
}

/// Returns a Redis key of a partition.
///
/// Redis Cluster places keys by the text in braces, so a partition is always on one node. The
/// version is in the name, so that programs of two versions never write to the same data.
fn name(queue: &str, partition: usize, end: &str) -> String {
    format!("rq{VERSION}:{{{queue}:{partition}}}:{end}")
}

/// Returns the Redis key of a limiter.
pub(crate) fn limiter(queue: &str, partition: usize, limiter: &str) -> String {
    name(queue, partition, "t:") + limiter
}

/// Returns the Redis keys of a partition in version 4, each with its present name. The
/// settings come first.
pub(crate) fn old_names(queue: &str, partition: usize) -> Vec<(String, String)> {
    let pair = |end: &&str| {
        (format!("rq:{{{queue}:{partition}}}:{end}"), name(queue, partition, end))
    };
    OLD_PARTS.iter().map(pair).collect()
}

/// Returns a Redis key that never exists. Every script on a cluster declares it.
///
/// While a slot is migrated, a node refuses a script before it starts if one of the declared
/// keys is missing. Without the guard, a script could start because all its keys exist, empty
/// one of them, and be refused in the middle when it uses that key again: its writes so far
/// would stay.
pub(crate) fn guard(queue: &str, partition: usize) -> String {
    name(queue, partition, "g")
}

/// Returns the partition of a key: the 64-bit FNV-1a hash of its bytes, modulo the number of
/// partitions.
///
/// This must never change, or existing queues would not find their keys.
pub(crate) fn partition_of(key: &[u8], partitions: usize) -> usize {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    if partitions == 1 {
        return 0;
    }
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    let hash = key.iter().fold(OFFSET, step);
    let partition = hash % partitions as u64;
    usize::try_from(partition).expect("it is less than `partitions`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_of_a_key_never_changes() {
        assert_eq!(partition_of(b"", 1000), 37);
        assert_eq!(partition_of(b"a", 1000), 996);
        assert_eq!(partition_of(b"foobar", 1000), 968);
        assert_eq!(partition_of(b"default/web", 4), 3);
    }
}
