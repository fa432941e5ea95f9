//! Borrowed forms of a key.

use std::ffi::{OsStr, OsString};
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A borrowed form from which an owned key `K` can be made.
///
/// Methods that take a borrowed key make an owned one only if they have to keep it. So a
/// `Queue<Arc<str>>` or a `Queue<String>` accepts a `&str`, and a duplicate costs no
/// allocation.
///
/// Every key is a borrowed form of itself. `str`, [`OsStr`], [`Path`] and slices are borrowed
/// forms of their owned types, and of `Arc` and `Box` of themselves. Implement it for a
/// borrowed form of a custom key type; `Hash` and `Eq` must agree with those of the key, as
/// [`Borrow`](std::borrow::Borrow) requires.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use requeue::{Queue, ToKey};
///
/// let key: Arc<str> = "namespace/name".to_key();
/// let queue = Queue::<Arc<str>>::new();
/// queue.add_ref("namespace/name")?;
/// assert!(queue.contains(&key));
/// # Ok::<(), requeue::Closed>(())
/// ```
pub trait ToKey<K>: Eq + Hash {
    /// Makes an owned key.
    fn to_key(&self) -> K;
}

impl<K: Clone + Eq + Hash> ToKey<K> for K {
    fn to_key(&self) -> K {
        self.clone()
    }
}

macro_rules! to_key {
    ($($borrowed:ty => $($owned:ty),+;)*) => {$($(
        impl ToKey<$owned> for $borrowed {
            fn to_key(&self) -> $owned {
                self.into()
            }
        }
    )+)*};
}

to_key! {
    str => String, Arc<str>, Box<str>;
    OsStr => OsString, Arc<OsStr>, Box<OsStr>;
    Path => PathBuf, Arc<Path>, Box<Path>;
}

macro_rules! slice_to_key {
    ($($owned:ident<$item:ty>),*) => {$(
        impl<T: Clone + Eq + Hash> ToKey<$owned<$item>> for [T] {
            fn to_key(&self) -> $owned<$item> {
                self.into()
            }
        }
    )*};
}

slice_to_key!(Vec<T>, Arc<[T]>, Box<[T]>);
