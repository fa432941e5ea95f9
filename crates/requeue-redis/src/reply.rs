//! Reading the replies of scripts.

use std::time::Duration;

use redis::Value;
use requeue_store::{Error, Key};

use crate::error::unexpected_reply;
use crate::record::Record;

/// Reads the elements of a reply one after the other.
pub(crate) struct ReplyReader {
    elements: std::vec::IntoIter<Value>,
    /// What the reply is about, for error messages.
    topic: &'static str,
}

impl ReplyReader {
    /// A reply that is not an array has one element.
    pub(crate) fn new(reply: Value, topic: &'static str) -> Self {
        let elements = if let Value::Array(all) = reply { all } else { vec![reply] };
        Self { elements: elements.into_iter(), topic }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.elements.len() == 0
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.elements.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            _ => Err(self.unexpected()),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|_| self.unexpected())
    }

    pub(crate) fn key(&mut self) -> Result<Key, Error> {
        Key::new(self.bytes()?)
    }

    pub(crate) fn record(&mut self) -> Result<Record, Error> {
        let text = self.bytes()?;
        Record::parse(&text).ok_or_else(|| self.unexpected())
    }

    /// Reads an integer, or the digits of one.
    pub(crate) fn number(&mut self) -> Result<i64, Error> {
        match self.elements.next() {
            Some(Value::Int(number)) => Ok(number),
            Some(Value::BulkString(digits)) => {
                parse(&digits).ok_or_else(|| self.unexpected())
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Reads a count; a negative one is 0.
    pub(crate) fn count(&mut self) -> Result<u64, Error> {
        Ok(u64::try_from(self.number()?).unwrap_or_default())
    }

    /// Reads microseconds; a negative number is `None`.
    pub(crate) fn duration(&mut self) -> Result<Option<Duration>, Error> {
        Ok(u64::try_from(self.number()?).ok().map(Duration::from_micros))
    }

    /// Reads a time in microseconds, which may be empty.
    pub(crate) fn time(&mut self) -> Result<Option<u64>, Error> {
        let digits = self.bytes()?;
        if digits.is_empty() {
            return Ok(None);
        }
        parse(&digits).map(Some).ok_or_else(|| self.unexpected())
    }

    pub(crate) fn unexpected(&self) -> Error {
        unexpected_reply(self.topic)
    }
}

/// Returns how long it is from one time to a later one.
pub(crate) fn between(from: u64, to: u64) -> Duration {
    Duration::from_micros(to.saturating_sub(from))
}

fn parse<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
