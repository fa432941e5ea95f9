//! What is on disk: the format of the records.
//!
//! A record has a name and a value. The name is a tag and, for a key, its bytes; the tag
//! also keeps the name of the empty key from being empty, which the engine refuses.
//!
//! | name | value |
//! |---|---|
//! | `0x00` | the [state](State) of the queue |
//! | `0x01` and the key | what is kept of the key: [`Lasting`] |
//!
//! The first byte of each value is the version of its format, [`VERSION`]. Numbers are big
//! endian; a moment is the microseconds since 1970 in 8 bytes; a text is its length in
//! 4 bytes and then UTF-8.
//!
//! A key, version 2: a byte of flags, then the fields whose flag is set, in this order.
//!
//! | flag | field |
//! |---|---|
//! | `0x01` | ready or granted: since when (8), place among equals (8) |
//! | `0x02` | granted: to whom (text) |
//! | `0x04` | delayed: until when (8), place among equals (8) |
//! | `0x08` | failures (4) and the last error (text) |
//! | `0x10` | deliveries (4) |
//! | `0x20` | dead: why (text), since when (8), who had it last (text) |
//! | `0x40` | the priority with which it comes next (1, two's complement) |
//!
//! Version 1 had no priorities, and is read as well.
//!
//! The state: whether it is paused (1: 0 or 1), the greatest token that may have
//! been given out (8), when this was written (8), the debt of the shared rate at that
//! moment in microseconds (8).

use std::time::Duration;

use fjall::Slice;
use requeue_store::machine::Lasting;
use requeue_store::{Error, ErrorKind, Key, Moment, Owner, micros_of};

/// The version of the formats in this file. It grows when any of them changes.
pub(crate) const VERSION: u8 = 2;

const STATE: u8 = 0;
const KEY: u8 = 1;

const READY: u8 = 0x01;
const HELD: u8 = 0x02;
const DELAYED: u8 = 0x04;
const FAILED: u8 = 0x08;
const DELIVERED: u8 = 0x10;
const DEAD: u8 = 0x20;
const RANKED: u8 = 0x40;
const ALL: u8 = READY | HELD | DELAYED | FAILED | DELIVERED | DEAD | RANKED;

/// What is kept of the queue as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) paused: bool,
    /// No token that was given out is greater.
    pub(crate) mark: u64,
    /// When `debt` was so much.
    pub(crate) at: Moment,
    pub(crate) debt: Duration,
}

/// One record, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    State(State),
    Key(Key, Lasting),
}

/// Writes records down, with the same room for all of them.
#[derive(Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    /// The name of the record of the queue's state.
    pub(crate) fn state_name(&mut self) -> Slice {
        self.write(|bytes| bytes.push(STATE))
    }

    /// The name of a key's record.
    pub(crate) fn key_name(&mut self, key: &Key) -> Slice {
        self.write(|bytes| {
            bytes.push(KEY);
            bytes.extend_from_slice(key);
        })
    }

    /// The state of the queue.
    pub(crate) fn state(&mut self, state: &State) -> Slice {
        self.write(|bytes| put_state(bytes, state))
    }

    /// What is kept of a key.
    pub(crate) fn key(&mut self, kept: &Lasting) -> Slice {
        self.write(|bytes| put_key(bytes, kept))
    }

    fn write(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Slice {
        self.0.clear();
        put(&mut self.0);
        Slice::new(&self.0)
    }
}

fn put_state(bytes: &mut Vec<u8>, state: &State) {
    bytes.extend_from_slice(&[VERSION, u8::from(state.paused)]);
    bytes.extend_from_slice(&state.mark.to_be_bytes());
    put_moment(bytes, state.at);
    bytes.extend_from_slice(&micros_of(state.debt).to_be_bytes());
}

fn put_key(bytes: &mut Vec<u8>, kept: &Lasting) {
    bytes.extend_from_slice(&[VERSION, flags(kept)]);
    if let Some((at, place)) = kept.ready {
        put_place(bytes, at, place);
    }
    if let Some(owner) = &kept.held_by {
        put_text(bytes, owner.as_str());
    }
    if let Some((at, place)) = kept.wake_at {
        put_place(bytes, at, place);
    }
    if has_failed(kept) {
        bytes.extend_from_slice(&kept.failures.to_be_bytes());
        put_text(bytes, &kept.error);
    }
    if kept.deliveries > 0 {
        bytes.extend_from_slice(&kept.deliveries.to_be_bytes());
    }
    if let Some((reason, at, owner)) = &kept.buried {
        put_text(bytes, reason);
        put_moment(bytes, *at);
        put_text(bytes, owner.as_str());
    }
    if kept.priority != 0 {
        bytes.extend_from_slice(&kept.priority.to_be_bytes());
    }
}

fn has_failed(kept: &Lasting) -> bool {
    kept.failures > 0 || !kept.error.is_empty()
}

fn flags(kept: &Lasting) -> u8 {
    [
        (kept.ready.is_some(), READY),
        (kept.held_by.is_some(), HELD),
        (kept.wake_at.is_some(), DELAYED),
        (has_failed(kept), FAILED),
        (kept.deliveries > 0, DELIVERED),
        (kept.buried.is_some(), DEAD),
        (kept.priority != 0, RANKED),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .fold(0, |flags, flag| flags | flag)
}

fn put_moment(bytes: &mut Vec<u8>, at: Moment) {
    bytes.extend_from_slice(&at.micros().to_be_bytes());
}

fn put_place(bytes: &mut Vec<u8>, at: Moment, place: u64) {
    put_moment(bytes, at);
    bytes.extend_from_slice(&place.to_be_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let len = u32::try_from(text.len()).expect("texts of a queue are far below 4 GB");
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads a record.
///
/// # Errors
///
/// [`ErrorKind::Version`] for a version that this program does not know, and
/// [`ErrorKind::Corrupt`] for anything else that it cannot read; the text names the key.
pub(crate) fn decode(name: &[u8], value: &[u8]) -> Result<Record, Error> {
    let of = Of(name);
    let mut rest = Rest(value);
    let version = rest.byte().ok_or_else(|| of.corrupt())?;
    if version == 0 || version > VERSION {
        return Err(of.version(version));
    }
    let record = match name.split_first() {
        Some((&STATE, [])) => rest.state().map(Record::State),
        Some((&KEY, key)) => {
            let key = Key::new(key).map_err(|error| of.corrupt().because(error))?;
            rest.lasting().map(|kept| Record::Key(key, kept))
        }
        _ => None,
    };
    record.filter(|_| rest.0.is_empty()).ok_or_else(|| of.corrupt())
}

/// The name of a record, as people are told it.
struct Of<'a>(&'a [u8]);

impl Of<'_> {
    fn text(&self) -> String {
        match self.0.split_first() {
            Some((&STATE, [])) => "the record of the queue's state".to_owned(),
            Some((&KEY, key)) => {
                format!("the record of the key {:?}", String::from_utf8_lossy(key))
            }
            _ => format!("the record named {:?}", String::from_utf8_lossy(self.0)),
        }
    }

    fn corrupt(&self) -> Error {
        let text = format!("{} cannot be read: it is damaged", self.text());
        Error::new(ErrorKind::Corrupt, text)
    }

    fn version(&self, version: u8) -> Error {
        let text = format!(
            "{} is of version {version}; this program knows versions up to {VERSION}",
            self.text()
        );
        Error::new(ErrorKind::Version, text)
    }
}

/// What is left of a value to be read. `None`: it is not what was expected.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn state(&mut self) -> Option<State> {
        let paused = match self.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (mark, at) = (self.long()?, self.moment()?);
        Some(State { paused, mark, at, debt: Duration::from_micros(self.long()?) })
    }

    fn lasting(&mut self) -> Option<Lasting> {
        let flags = self.byte()?;
        if flags & !ALL != 0 || flags & (READY | HELD) == HELD {
            return None;
        }
        let has = |flag| flags & flag != 0;
        let mut kept = Lasting::default();
        if has(READY) {
            kept.ready = Some(self.place()?);
        }
        if has(HELD) {
            kept.held_by = Some(Owner::new(self.text()?));
        }
        if has(DELAYED) {
            kept.wake_at = Some(self.place()?);
        }
        if has(FAILED) {
            (kept.failures, kept.error) = (self.short()?, self.text()?.into());
        }
        if has(DELIVERED) {
            kept.deliveries = self.short()?;
        }
        if has(DEAD) {
            let (reason, at) = (self.text()?, self.moment()?);
            kept.buried = Some((reason, at, Owner::new(self.text()?)));
        }
        if has(RANKED) {
            kept.priority = i8::from_be_bytes([self.byte()?]);
        }
        Some(kept)
    }

    fn bytes(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn short(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    fn moment(&mut self) -> Option<Moment> {
        self.long().map(Moment::from_micros)
    }

    fn place(&mut self) -> Option<(Moment, u64)> {
        Some((self.moment()?, self.long()?))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.short()?;
        let bytes = self.bytes(usize::try_from(len).ok()?)?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests;
