//! Which partition a key is in, and what its Redis keys are called.

use std::collections::HashMap;

use requeue_store::Key;

use crate::script::PARTS;

/// The most keys that one call of a script is given: it keeps the server busy for a
/// millisecond or two.
pub(crate) const MOST_KEYS: usize = 500;

/// The names of the Redis keys of one partition, in the order of [`PARTS`].
///
/// The part in braces is what Redis Cluster places keys by: a partition is always whole on
/// one node.
pub(crate) fn names(queue: &str, partition: usize) -> Vec<String> {
    let name = |(_, end): &(&str, &str)| format!("rq:{{{queue}:{partition}}}:{end}");
    PARTS.iter().map(name).collect()
}

/// The name of a Redis key of a partition that is never there, and that every script on a
/// cluster is given after its parts.
///
/// While a slot moves, a node refuses a call if a key that it names is not there, before the
/// call begins. In the middle of a script it would refuse the next command, too, for a part
/// that is empty since the one before: and what was written until then would stay. So all
/// that names a key which is never there has run as a whole, or not at all.
pub(crate) fn guard(queue: &str, partition: usize) -> String {
    format!("rq:{{{queue}:{partition}}}:g")
}

/// The partition of a key: FNV-1a of its bytes, in 64 bits, modulo how many there are.
///
/// Queues live in servers for years and each key has to be found again: this must never
/// change.
pub(crate) fn partition_of(key: &[u8], partitions: usize) -> usize {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    if partitions == 1 {
        return 0;
    }
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    let hash = key.iter().fold(OFFSET, step);
    let partition = hash % partitions as u64;
    usize::try_from(partition).expect("it is less than a usize")
}

/// Part of a batch: what one call of a script is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) partition: usize,
    /// Where in the batch its keys are.
    pub(crate) places: Vec<usize>,
}

/// Splits a batch into calls of scripts: no more than [`MOST_KEYS`] each, all of one
/// partition, no key twice. In the order of the calls, each partition has its keys in the
/// order of the batch.
pub(crate) fn spread<'a, I: Iterator<Item = &'a Key>>(
    keys: I,
    partitions: usize,
) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut open = vec![None; partitions];
    let mut last_seen: HashMap<&Key, usize> = HashMap::new();
    for (place, key) in keys.enumerate() {
        let partition = partition_of(key, partitions);
        let fits = |chunk: &usize| {
            chunks[*chunk].places.len() < MOST_KEYS && last_seen.get(key) != Some(chunk)
        };
        let chunk = open[partition].filter(fits).unwrap_or_else(|| {
            chunks.push(Chunk { partition, places: Vec::new() });
            chunks.len() - 1
        });
        chunks[chunk].places.push(place);
        open[partition] = Some(chunk);
        last_seen.insert(key, chunk);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::new(name.as_bytes()).unwrap()).collect()
    }

    fn places(keys: &[Key], partitions: usize) -> Vec<Vec<usize>> {
        spread(keys.iter(), partitions).into_iter().map(|chunk| chunk.places).collect()
    }

    #[test]
    fn the_partition_of_a_key_is_what_it_always_was() {
        assert_eq!(partition_of(b"", 1000), 37);
        assert_eq!(partition_of(b"a", 1000), 996);
        assert_eq!(partition_of(b"foobar", 1000), 968);
        assert_eq!(partition_of(b"default/web", 4), 3);
    }

    #[test]
    fn a_key_that_comes_twice_begins_another_call() {
        let batch = keys(&["a", "b", "a", "c", "b", "b"]);
        assert_eq!(places(&batch, 1), [vec![0, 1], vec![2, 3, 4], vec![5]]);
    }

    #[test]
    fn no_call_has_more_keys_than_are_allowed() {
        let names: Vec<_> = (0..1200).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let chunks = places(&keys(&names), 1);
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [500, 500, 200]);
    }

    #[test]
    fn each_partition_has_its_keys_in_the_order_of_the_batch() {
        let names: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let batch = keys(&names);
        let chunks = spread(batch.iter(), 4);
        assert_eq!(chunks.len(), 4);
        for chunk in chunks {
            assert!(chunk.places.is_sorted());
            for place in chunk.places {
                assert_eq!(partition_of(&batch[place], 4), chunk.partition);
            }
        }
    }
}
