//! Keys of stores: bytes, and types that convert to bytes.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::{Error, ErrorKind};

/// A key as stores keep it: at most [`Key::MAX_LEN`] bytes.
///
/// Clones share the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The maximum length in bytes. It is limited by PostgreSQL, whose index entries take at
    /// most a third of a page.
    pub const MAX_LEN: usize = 1024;

    /// Creates a key from bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there are more than [`Key::MAX_LEN`] bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Self, Error> {
        let bytes = bytes.into();
        if bytes.len() <= Self::MAX_LEN {
            return Ok(Self(bytes));
        }
        let text = format!(
            "the key has {} bytes; the maximum is {}",
            bytes.len(),
            Self::MAX_LEN
        );
        Err(Error::new(ErrorKind::Invalid, text))
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// Shows bytes that are not UTF-8 as replacement characters.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// A type that can be the key of a [`SharedQueue`](crate::SharedQueue).
///
/// Two keys are equal if their bytes are: [`encode`](StoreKey::encode) must return the same
/// bytes for equal keys, in every version of a program that shares the queue. Strings and
/// bytes are stored verbatim, and numbers as decimal text.
///
/// # Examples
///
/// ```
/// use requeue_store::{Error, StoreKey};
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct Invoice(u64);
///
/// impl StoreKey for Invoice {
///     fn encode(&self) -> Vec<u8> {
///         self.0.encode()
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Self, Error> {
///         u64::decode(bytes).map(Self)
///     }
/// }
///
/// assert_eq!(Invoice::decode(&Invoice(7).encode()).unwrap(), Invoice(7));
/// ```
pub trait StoreKey: Sized {
    /// Returns the bytes of the key.
    fn encode(&self) -> Vec<u8>;

    /// Returns the key with these bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if there is no such key.
    fn decode(bytes: &[u8]) -> Result<Self, Error>;
}

impl StoreKey for Vec<u8> {
    fn encode(&self) -> Vec<u8> {
        self.clone()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Ok(bytes.to_vec())
    }
}

impl StoreKey for Key {
    fn encode(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Self::new(bytes)
    }
}

impl StoreKey for String {
    fn encode(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let key = String::from_utf8_lossy(bytes);
            let text = format!("the stored key {key:?} is not UTF-8");
            Error::new(ErrorKind::Corrupt, text).because(error)
        })?;
        Ok(text.to_owned())
    }
}

// Decimal text is readable for people and easy to write in any language.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl StoreKey for $number {
            fn encode(&self) -> Vec<u8> {
                self.to_string().into_bytes()
            }

            fn decode(bytes: &[u8]) -> Result<Self, Error> {
                let text = String::from_utf8_lossy(bytes);
                let number = text.parse::<Self>().ok();
                // Only one of several texts for a number is its key: 7, not 07.
                number.filter(|number| *text == number.to_string()).ok_or_else(|| {
                    let kind = stringify!($number);
                    let text = format!("the stored key {text:?} is not a {kind}");
                    Error::new(ErrorKind::Corrupt, text)
                })
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// A key of any type that implements serde's traits, stored as JSON.
///
/// Equal keys must have the same JSON. Do not use maps with an unstable order.
///
/// # Examples
///
/// ```
/// use requeue_store::{Json, StoreKey};
///
/// let key = Json(("default".to_owned(), "web".to_owned()));
/// assert_eq!(key.encode(), br#"["default","web"]"#);
/// assert_eq!(Json::<(String, String)>::decode(&key.encode()).unwrap(), key);
/// ```
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json<T>(pub T);

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> StoreKey for Json<T> {
    /// # Panics
    ///
    /// If the key cannot be written as JSON, for example a map whose keys are not strings.
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a key can be written as JSON")
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map(Self).map_err(|error| {
            let key = String::from_utf8_lossy(bytes);
            let text = format!("the stored key {key:?} is not the expected JSON");
            Error::new(ErrorKind::Corrupt, text).because(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_decimal_form() {
        for number in [i64::MIN, -7, 0, i64::MAX] {
            assert_eq!(number.encode(), number.to_string().as_bytes());
            assert_eq!(i64::decode(&number.encode()).unwrap(), number);
        }
        for text in ["07", "+7", "", " 7", "4294967296", "-1", "\u{661}"] {
            let error = u32::decode(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(
                error.to_string(),
                format!("the stored key {text:?} is not a u32")
            );
        }
    }
}
