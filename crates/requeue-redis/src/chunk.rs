//! Splitting a batch into calls of scripts.

use std::collections::HashMap;

use requeue_store::{Error, Key, every};

use crate::client::Args;
use crate::error::unexpected_reply;
use crate::partition::partition_of;

/// The most keys in one call of a script. That many keep the server busy for a millisecond or
/// two.
pub(crate) const MAX_KEYS: usize = 500;

/// The part of a batch that goes into one call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) partition: usize,
    /// Indexes into the batch.
    pub(crate) items: Vec<usize>,
}

impl Chunk {
    /// Appends the keys of the chunk to the arguments of its call.
    pub(crate) fn push_keys<'a>(&self, key: impl Fn(usize) -> &'a Key, args: &mut Args) {
        args.extend(self.items.iter().map(|index| key(*index).to_vec()));
    }

    /// Moves the answers for this chunk to their places in the answers for the batch.
    pub(crate) fn scatter<T>(
        &self,
        answers: Result<Vec<T>, Error>,
        batch: &mut [Option<Result<T, Error>>],
    ) {
        let is_complete = |answers: &Vec<T>| answers.len() == self.items.len();
        let answers = answers.and_then(|answers| {
            if is_complete(&answers) {
                Ok(answers)
            } else {
                Err(unexpected_reply("a batch"))
            }
        });
        for (index, answer) in self.items.iter().zip(every(self.items.len(), answers)) {
            batch[*index] = Some(answer);
        }
    }
}

/// Splits a batch into chunks of at most [`MAX_KEYS`] different keys of one partition.
///
/// The chunks of a partition, one after the other, have its keys in the order of the batch.
pub(crate) fn split<'a, I: Iterator<Item = &'a Key>>(
    keys: I,
    partitions: usize,
) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut open = vec![None; partitions];
    let mut chunk_of: HashMap<&Key, usize> = HashMap::new();
    for (index, key) in keys.enumerate() {
        let partition = partition_of(key, partitions);
        let fits = |chunk: &usize| {
            chunks[*chunk].items.len() < MAX_KEYS && chunk_of.get(key) != Some(chunk)
        };
        let chunk = open[partition].filter(fits).unwrap_or_else(|| {
            chunks.push(Chunk { partition, items: Vec::new() });
            chunks.len() - 1
        });
        chunks[chunk].items.push(index);
        open[partition] = Some(chunk);
        chunk_of.insert(key, chunk);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::new(name.as_bytes()).unwrap()).collect()
    }

    fn items(keys: &[Key], partitions: usize) -> Vec<Vec<usize>> {
        split(keys.iter(), partitions).into_iter().map(|chunk| chunk.items).collect()
    }

    #[test]
    fn a_repeated_key_starts_another_chunk() {
        let batch = keys(&["a", "b", "a", "c", "b", "b"]);
        assert_eq!(items(&batch, 1), [vec![0, 1], vec![2, 3, 4], vec![5]]);
    }

    #[test]
    fn a_chunk_has_at_most_500_keys() {
        let names: Vec<_> = (0..1200).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let chunks = items(&keys(&names), 1);
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [500, 500, 200]);
    }

    #[test]
    fn chunks_keep_the_order_of_the_batch() {
        let names: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let batch = keys(&names);
        let chunks = split(batch.iter(), 4);
        assert_eq!(chunks.len(), 4);
        for chunk in chunks {
            assert!(chunk.items.is_sorted());
            for index in chunk.items {
                assert_eq!(partition_of(&batch[index], 4), chunk.partition);
            }
        }
    }
}
