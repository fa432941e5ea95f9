//! What keys are called in Redis.
//!
//! By their own bytes, except for the one that has none: the field of `states` without a
//! name is [taken](crate::script::PARTS).

use requeue_store::{Error, Key};

/// The name of the empty key: longer than any key, and than ballast.
const EMPTY: &[u8] = &[b'-'; Key::MAX_LEN + 2];

pub(crate) fn name_of(key: &Key) -> &[u8] {
    if key.is_empty() { EMPTY } else { key }
}

pub(crate) fn key_of(name: Vec<u8>) -> Result<Key, Error> {
    if name == EMPTY { Key::new([]) } else { Key::new(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_name_and_none_has_no_name() {
        for bytes in [&b""[..], b"-", b"a/b", &[b'-'; Key::MAX_LEN]] {
            let key = Key::new(bytes).unwrap();
            assert!(!name_of(&key).is_empty());
            assert_eq!(key_of(name_of(&key).to_vec()).unwrap(), key);
        }
    }
}
