//! Where the rows are of keys that this store handed out.
//!
//! Whoever ends a lease says its key and its token. The store knows besides at which
//! address the server wrote the row when it was handed out: the end then need not look for
//! it in an index.
//!
//! # Invariants
//!
//! 1. An address is only a guess, since the row moves when anybody changes it. A statement
//!    that uses one compares the token, which is never granted twice.
//! 2. An address is used for the key that it was told with, and once.
//! 3. At most twice [`MOST`] are kept; the oldest are forgotten first.

use std::collections::HashMap;
use std::error::Error;
use std::mem;
use std::sync::{Mutex, PoisonError};

use bytes::BytesMut;
use requeue_store::{Grant, Hold, Key, Token};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::hunch::Hunch;

/// How many addresses make up one of two generations.
const MOST: usize = 50_000;

/// The address of a version of a row, a `tid`: its page in 4 bytes, its place there in 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowAddress([u8; 6]);

impl<'a> FromSql<'a> for RowAddress {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TID
    }
}

impl ToSql for RowAddress {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TID
    }

    to_sql_checked!();
}

type Addresses = HashMap<Token, (Key, RowAddress)>;

/// The addresses of the keys that were handed out last.
#[derive(Default)]
pub(crate) struct Rows {
    generations: Mutex<[Addresses; 2]>,
    /// Whether rows that are to be ended are all as they were handed out.
    pub(crate) unchanged: Hunch,
}

impl Rows {
    /// Keeps where the rows of grants are.
    pub(crate) fn keep(&self, grants: &[Grant], addresses: &[RowAddress]) {
        let mut generations = self.lock();
        if generations[0].len() >= MOST {
            let older = mem::take(&mut generations[0]);
            generations[1] = older;
        }
        for (grant, &address) in grants.iter().zip(addresses) {
            generations[0].insert(grant.token, (grant.key.clone(), address));
        }
    }

    /// Takes out where the row of a lease is, if that is known.
    pub(crate) fn take(&self, hold: &Hold) -> Option<RowAddress> {
        let mut generations = self.lock();
        let found = generations.iter_mut().find_map(|known| known.remove(&hold.token));
        found.filter(|(key, _)| *key == hold.key).map(|(_, address)| address)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Addresses; 2]> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn grant(key: &str, token: u64) -> Grant {
        let key = Key::new(key.as_bytes()).unwrap();
        let (token, waited) = (Token(token), Duration::ZERO);
        Grant { key, token, deliveries: 1, failures: 0, priority: 0, waited }
    }

    fn hold(grant: &Grant) -> Hold {
        Hold { key: grant.key.clone(), token: grant.token }
    }

    #[test]
    fn an_address_is_given_out_once_and_only_for_its_key() {
        let rows = Rows::default();
        let (a, b) = (grant("a", 1), grant("b", 2));
        rows.keep(&[a.clone(), b.clone()], &[RowAddress([1; 6]), RowAddress([2; 6])]);
        assert_eq!(rows.take(&hold(&a)), Some(RowAddress([1; 6])));
        assert_eq!(rows.take(&hold(&a)), None);
        assert_eq!(rows.take(&Hold { key: a.key, token: b.token }), None);
    }

    #[test]
    fn the_oldest_addresses_are_forgotten() {
        let rows = Rows::default();
        let grants: Vec<_> = (0..=2 * MOST as u64).map(|n| grant("a", n)).collect();
        for grant in &grants {
            rows.keep(std::slice::from_ref(grant), &[RowAddress([0; 6])]);
        }
        assert_eq!(rows.take(&hold(&grants[0])), None);
        assert!(rows.take(&hold(&grants[MOST])).is_some());
        assert!(rows.take(&hold(&grants[2 * MOST])).is_some());
    }
}
