//! The partition of a key, and the Redis keys of a partition.

use crate::script::PARTS;

/// Returns the Redis keys of one partition, in the order of [`PARTS`].
///
/// Redis Cluster places keys by the text in braces, so a partition is always on one node.
pub(crate) fn names(queue: &str, partition: usize) -> Vec<String> {
    let name = |(_, end): &(&str, &str)| format!("rq:{{{queue}:{partition}}}:{end}");
    PARTS.iter().map(name).collect()
}

/// Returns a Redis key that never exists. Every script on a cluster declares it.
///
/// While a slot is migrated, a node refuses a script before it starts if one of the declared
/// keys is missing. Without the guard, a script could start because all its keys exist, empty
/// one of them, and be refused in the middle when it uses that key again: its writes so far
/// would stay.
pub(crate) fn guard(queue: &str, partition: usize) -> String {
    format!("rq:{{{queue}:{partition}}}:g")
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
