//! The format of the records on disk.
//!
//! A record has a name and a value. The name is a tag, followed by the bytes of the key in
//! the record of a key. The tag also makes the name of the empty key non-empty, as fjall
//! requires.
//!
//! | name | value |
//! |---|---|
//! | `0x00` | the [state of the queue](QueueState) |
//! | `0x01` and the key | the persistent part of the key: [`PersistedKey`] |
//!
//! Every value starts with its format version. A store reads and writes only [`VERSION`];
//! a migration also reads older versions. Numbers are big endian. A time
//! is the number of microseconds since 1970 in 8 bytes. A text is its length in 4 bytes,
//! followed by UTF-8. A sequence number (8) orders keys with equal times.
//!
//! The record of a key: a byte of flags, then the fields whose flag is set, in
//! this order, with their sizes in bytes.
//!
//! | flag | fields |
//! |---|---|
//! | `0x01` | ready or leased: start time (8), sequence number (8) |
//! | `0x02` | leased: owner (text) |
//! | `0x04` | delayed: deadline (8), sequence number (8) |
//! | `0x08` | failures (4), last error (text) |
//! | `0x10` | deliveries (4) |
//! | `0x20` | dead: reason (text), time of death (8), last owner (text) |
//! | `0x40` | priority of the next delivery (1, two's complement) |
//! | `0x80` | dirty: leased, and added during the lease |
//!
//! The state of the queue: paused (1: 0 or 1), token watermark (8), time of writing (8),
//! debt of the shared rate at that time in microseconds (8), number of shared limiters (4),
//! and for each its name (text) and its debt in microseconds (8).
//!
//! | version | differences |
//! |---|---|
//! | 1 | no priorities, dirty keys or limiters |
//! | 2 | no dirty keys or limiters |
//! | 3 | as above |

use std::time::Duration;

use fjall::Slice;
use requeue_store::machine::PersistedKey;
use requeue_store::{EngineTime, Error, ErrorKind, Key, Owner, micros_of};

/// The format version. It increases when any format in this file changes.
pub(crate) const VERSION: u8 = 3;

/// The first version of the state of the queue with limiters.
const FIRST_WITH_LIMITERS: u8 = 3;

const QUEUE_STATE_TAG: u8 = 0;
const KEY_TAG: u8 = 1;

const READY: u8 = 0x01;
const LEASED: u8 = 0x02;
const DELAYED: u8 = 0x04;
const FAILED: u8 = 0x08;
const DELIVERED: u8 = 0x10;
const DEAD: u8 = 0x20;
const PRIORITY: u8 = 0x40;
const DIRTY: u8 = 0x80;

/// The persistent state of the queue as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub(crate) paused: bool,
    /// An upper bound of all delivered tokens.
    pub(crate) watermark: u64,
    /// The time at which `debt` was measured.
    pub(crate) at: EngineTime,
    /// The debt of the shared rate.
    pub(crate) debt: Duration,
    /// The debts of the shared limiters.
    pub(crate) limiters: Vec<(String, Duration)>,
}

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    QueueState(QueueState),
    Key(Key, PersistedKey),
}

/// Encodes names and values, reusing one buffer.
#[derive(Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn queue_state_name(&mut self) -> Slice {
        self.write(|bytes| bytes.push(QUEUE_STATE_TAG))
    }

    pub(crate) fn key_name(&mut self, key: &Key) -> Slice {
        self.write(|bytes| {
            bytes.push(KEY_TAG);
            bytes.extend_from_slice(key);
        })
    }

    pub(crate) fn queue_state(&mut self, state: &QueueState) -> Slice {
        self.write(|bytes| put_queue_state(bytes, state))
    }

    pub(crate) fn key(&mut self, record: &PersistedKey) -> Slice {
        self.write(|bytes| put_key(bytes, record))
    }

    fn write(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Slice {
        self.0.clear();
        put(&mut self.0);
        Slice::new(&self.0)
    }
}

fn put_queue_state(bytes: &mut Vec<u8>, state: &QueueState) {
    bytes.extend_from_slice(&[VERSION, u8::from(state.paused)]);
    bytes.extend_from_slice(&state.watermark.to_be_bytes());
    put_moment(bytes, state.at);
    bytes.extend_from_slice(&micros_of(state.debt).to_be_bytes());
    let count = u32::try_from(state.limiters.len())
        .expect("the limiters of a queue are far fewer than 4 billion");
    bytes.extend_from_slice(&count.to_be_bytes());
    for (name, debt) in &state.limiters {
        put_text(bytes, name);
        bytes.extend_from_slice(&micros_of(*debt).to_be_bytes());
    }
}

fn put_key(bytes: &mut Vec<u8>, record: &PersistedKey) {
    bytes.extend_from_slice(&[VERSION, flags(record)]);
    if let Some((at, sequence)) = record.ready {
        put_time_and_sequence(bytes, at, sequence);
    }
    if let Some(owner) = &record.held_by {
        put_text(bytes, owner.as_str());
    }
    if let Some((at, sequence)) = record.wake_at {
        put_time_and_sequence(bytes, at, sequence);
    }
    if has_failed(record) {
        bytes.extend_from_slice(&record.failures.to_be_bytes());
        put_text(bytes, &record.error);
    }
    if record.deliveries > 0 {
        bytes.extend_from_slice(&record.deliveries.to_be_bytes());
    }
    if let Some((reason, at, owner)) = &record.death {
        put_text(bytes, reason);
        put_moment(bytes, *at);
        put_text(bytes, owner.as_str());
    }
    if record.priority != 0 {
        bytes.extend_from_slice(&record.priority.to_be_bytes());
    }
}

fn has_failed(record: &PersistedKey) -> bool {
    record.failures > 0 || !record.error.is_empty()
}

fn flags(record: &PersistedKey) -> u8 {
    [
        (record.ready.is_some(), READY),
        (record.held_by.is_some(), LEASED),
        (record.wake_at.is_some(), DELAYED),
        (has_failed(record), FAILED),
        (record.deliveries > 0, DELIVERED),
        (record.death.is_some(), DEAD),
        (record.priority != 0, PRIORITY),
        (record.dirty, DIRTY),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .fold(0, |flags, flag| flags | flag)
}

fn put_moment(bytes: &mut Vec<u8>, at: EngineTime) {
    bytes.extend_from_slice(&at.micros().to_be_bytes());
}

fn put_time_and_sequence(bytes: &mut Vec<u8>, at: EngineTime, sequence: u64) {
    put_moment(bytes, at);
    bytes.extend_from_slice(&sequence.to_be_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let len = u32::try_from(text.len())
        .expect("owners, errors and reasons are far shorter than 4 GB");
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Decodes a record of any version up to [`VERSION`]. Returns its version too.
///
/// # Errors
///
/// [`ErrorKind::Version`] for an unknown version, and [`ErrorKind::Corrupt`] for any other
/// invalid content. The message names the key.
pub(crate) fn decode(name: &[u8], value: &[u8]) -> Result<(Record, u8), Error> {
    let record_name = RecordName(name);
    let mut decoder = Decoder(value);
    let version = decoder.byte().ok_or_else(|| record_name.corrupt())?;
    if version == 0 || version > VERSION {
        return Err(record_name.version(version));
    }
    let record = match name.split_first() {
        Some((&QUEUE_STATE_TAG, [])) => {
            decoder.queue_state(version).map(Record::QueueState)
        }
        Some((&KEY_TAG, key)) => {
            let key =
                Key::new(key).map_err(|error| record_name.corrupt().because(error))?;
            decoder.key().map(|record| Record::Key(key, record))
        }
        _ => None,
    };
    let record = record.filter(|_| decoder.0.is_empty());
    record.map(|record| (record, version)).ok_or_else(|| record_name.corrupt())
}

/// The name of a record, for error messages.
struct RecordName<'a>(&'a [u8]);

impl RecordName<'_> {
    fn text(&self) -> String {
        match self.0.split_first() {
            Some((&QUEUE_STATE_TAG, [])) => "the state of the queue".to_owned(),
            Some((&KEY_TAG, key)) => {
                format!("the record of the key {:?}", String::from_utf8_lossy(key))
            }
            _ => format!("the record named {:?}", String::from_utf8_lossy(self.0)),
        }
    }

    fn corrupt(&self) -> Error {
        let text = format!("{} is damaged", self.text());
        Error::new(ErrorKind::Corrupt, text)
    }

    fn version(&self, version: u8) -> Error {
        let text = format!(
            "{} has format version {version}; this program supports versions up to \
             {VERSION}, use a newer one",
            self.text()
        );
        Error::new(ErrorKind::Version, text)
    }
}

/// The rest of a value. Its methods return `None` if the content is invalid.
struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn queue_state(&mut self, version: u8) -> Option<QueueState> {
        let paused = match self.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (watermark, at) = (self.u64()?, self.moment()?);
        let debt = Duration::from_micros(self.u64()?);
        let count = if version < FIRST_WITH_LIMITERS { 0 } else { self.u32()? };
        let limiters = (0..count).map(|_| self.limiter()).collect::<Option<_>>()?;
        Some(QueueState { paused, watermark, at, debt, limiters })
    }

    fn limiter(&mut self) -> Option<(String, Duration)> {
        Some((self.text()?, Duration::from_micros(self.u64()?)))
    }

    fn key(&mut self) -> Option<PersistedKey> {
        let flags = self.byte()?;
        let has = |flag| flags & flag != 0;
        if has(LEASED) && !has(READY) || has(DIRTY) && !has(LEASED) {
            return None;
        }
        let mut record = PersistedKey { dirty: has(DIRTY), ..PersistedKey::default() };
        if has(READY) {
            record.ready = Some(self.time_and_sequence()?);
        }
        if has(LEASED) {
            record.held_by = Some(Owner::new(self.text()?));
        }
        if has(DELAYED) {
            record.wake_at = Some(self.time_and_sequence()?);
        }
        if has(FAILED) {
            (record.failures, record.error) = (self.u32()?, self.text()?.into());
        }
        if has(DELIVERED) {
            record.deliveries = self.u32()?;
        }
        if has(DEAD) {
            let (reason, at) = (self.text()?, self.moment()?);
            record.death = Some((reason, at, Owner::new(self.text()?)));
        }
        if has(PRIORITY) {
            record.priority = i8::from_be_bytes([self.byte()?]);
        }
        Some(record)
    }

    fn bytes(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    fn moment(&mut self) -> Option<EngineTime> {
        self.u64().map(EngineTime::from_micros)
    }

    fn time_and_sequence(&mut self) -> Option<(EngineTime, u64)> {
        Some((self.moment()?, self.u64()?))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.u32()?;
        let bytes = self.bytes(usize::try_from(len).ok()?)?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests;
