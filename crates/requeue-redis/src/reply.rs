//! Reading what scripts answer.

use std::time::Duration;

use redis::Value;
use requeue_store::{Dead, Error, Key, Owner, Phase, Token};

use crate::fault::senseless;
use crate::name::key_of;

/// The parts of an answer, one after the other.
pub(crate) struct Answer {
    parts: std::vec::IntoIter<Value>,
    /// What was asked for.
    about: &'static str,
}

impl Answer {
    pub(crate) fn new(value: Value, about: &'static str) -> Self {
        let parts = if let Value::Array(parts) = value { parts } else { vec![value] };
        Self { parts: parts.into_iter(), about }
    }

    /// The rest is `count` parts for each of several things: how many things.
    pub(crate) fn things_of(&self, count: usize) -> usize {
        self.parts.len() / count
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.parts.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            _ => Err(self.senseless()),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|_| self.senseless())
    }

    pub(crate) fn key(&mut self) -> Result<Key, Error> {
        key_of(self.bytes()?)
    }

    /// A number, be it one or the digits of one.
    pub(crate) fn number(&mut self) -> Result<i64, Error> {
        match self.parts.next() {
            Some(Value::Int(number)) => Ok(number),
            Some(Value::BulkString(digits)) => {
                parse(&digits).ok_or_else(|| self.senseless())
            }
            _ => Err(self.senseless()),
        }
    }

    /// How many.
    pub(crate) fn count(&mut self) -> Result<u64, Error> {
        Ok(u64::try_from(self.number()?).unwrap_or_default())
    }

    pub(crate) fn small(&mut self) -> Result<u32, Error> {
        Ok(u32::try_from(self.count()?).unwrap_or(u32::MAX))
    }

    pub(crate) fn priority(&mut self) -> Result<i8, Error> {
        i8::try_from(self.number()?).map_err(|_| self.senseless())
    }

    /// Microseconds, or nothing if they are less than none.
    pub(crate) fn span(&mut self) -> Result<Option<Duration>, Error> {
        Ok(u64::try_from(self.number()?).ok().map(Duration::from_micros))
    }

    /// A moment that may be missing.
    pub(crate) fn moment(&mut self) -> Result<Option<i64>, Error> {
        let digits = self.bytes()?;
        if digits.is_empty() {
            return Ok(None);
        }
        parse(&digits).map(Some).ok_or_else(|| self.senseless())
    }

    pub(crate) fn senseless(&self) -> Error {
        senseless(self.about)
    }
}

/// How long it is from one moment to another.
pub(crate) fn between(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to.saturating_sub(from)).unwrap_or_default())
}

/// A state as [`PARTS`](crate::script::PARTS) describes it, except for a dead key: the
/// phase, and the deliveries.
pub(crate) fn state(value: &[u8]) -> Option<(Phase, u32)> {
    const PRIORITIES: usize = 9;
    let value = if value.starts_with(b"@") { value.get(PRIORITIES..)? } else { value };
    let Some((kind, rest)) = value.split_first() else {
        return Some((Phase::Absent, 0));
    };
    match kind {
        b'Q' => Some((Phase::Ready, optional_number(rest.get(16..)?)?)),
        b'A' => Some((Phase::Absent, optional_number(rest)?)),
        b'P' | b'D' => {
            let token = Token(parse(rest.get(..16)?)?);
            let mark = |byte: &u8| matches!(byte, b':' | b'!');
            let (deliveries, owner) = cut_at(rest.get(16..)?, mark)?;
            let owner = Owner::new(std::str::from_utf8(owner).ok()?);
            let dirty = *kind == b'D';
            Some((Phase::Processing { owner, token, dirty }, parse(deliveries)?))
        }
        _ => None,
    }
}

/// What is written of a dead key, except for how long it is dead.
pub(crate) fn grave(key: Key, record: &[u8]) -> Option<Dead> {
    let (failures, rest) = cut(record)?;
    let (deliveries, rest) = cut(rest)?;
    let (length, rest) = cut(rest)?;
    let (owner, reason) = rest.split_at_checked(parse(length)?)?;
    Some(Dead {
        key,
        reason: String::from_utf8_lossy(reason).into_owned(),
        since: Duration::ZERO,
        failures: parse(failures)?,
        deliveries: parse(deliveries)?,
        owner: Owner::new(std::str::from_utf8(owner).ok()?),
    })
}

/// What is before the first colon, and what is after it.
pub(crate) fn cut(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    cut_at(bytes, |byte| *byte == b':')
}

fn cut_at(bytes: &[u8], mark: impl FnMut(&u8) -> bool) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(mark)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

pub(crate) fn parse<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn optional_number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() { Some(0) } else { parse(digits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_scripts_write_them() {
        assert_eq!(state(b""), Some((Phase::Absent, 0)));
        assert_eq!(state(b"A2"), Some((Phase::Absent, 2)));
        assert_eq!(state(b"Q1700000000000000"), Some((Phase::Ready, 0)));
        assert_eq!(state(b"Q17000000000000003"), Some((Phase::Ready, 3)));
        assert_eq!(state(b"@+050----Q17000000000000003"), Some((Phase::Ready, 3)));
        assert_eq!(state(b"@-128----"), Some((Phase::Absent, 0)));
        let owner = Owner::new("host:7");
        let token = Token(1_700_000_000_000_000);
        let phase = Phase::Processing { owner, token, dirty: true };
        for mark in [":", "!"] {
            let value = format!("D170000000000000012{mark}host:7");
            assert_eq!(state(value.as_bytes()), Some((phase.clone(), 12)));
        }
    }

    #[test]
    fn what_no_script_writes_is_not_a_state() {
        for value in [&b"Z"[..], b"Q17", b"P1700000000000000", b"P170000000000000012host"]
        {
            assert_eq!(state(value), None, "{}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn an_owner_and_a_reason_may_contain_colons() {
        let dead = grave(Key::new(*b"k").unwrap(), b"3:1:4:a:b:why: so").unwrap();
        assert_eq!((dead.owner.as_str(), dead.reason.as_str()), ("a:b:", "why: so"));
        assert_eq!((dead.failures, dead.deliveries), (3, 1));
    }
}
