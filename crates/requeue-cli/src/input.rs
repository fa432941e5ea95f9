//! Splits input into keys: lines, NUL-separated records, or arguments.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;

/// A key: one or more bytes of any value.
pub(crate) type Key = Vec<u8>;

/// The sources of keys, and the format of a line.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) sources: Vec<Source>,
    /// Keys are typed on a terminal.
    pub(crate) typed: bool,
    pub(crate) separator: u8,
    /// The number of the word that is the priority, counted from 1.
    pub(crate) priority: Option<usize>,
    pub(crate) max_queued: Option<usize>,
    pub(crate) mode: Mode,
}

/// When `requeue run` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// When the input has ended and no key is left.
    UntilEmpty,
    /// On a signal. The keys come from a store; no input is read.
    Worker,
}

/// One source of keys.
pub(crate) enum Source {
    Stream(Box<dyn BufRead + Send>),
    Words(Vec<OsString>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(_) => f.write_str("Stream"),
            Self::Words(words) => f.debug_tuple("Words").field(words).finish(),
        }
    }
}

/// An item read from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'r> {
    /// A non-blank line or non-empty NUL record without its separator, or an argument, which
    /// may be empty.
    Line(&'r [u8]),
    /// All buffered lines are read; the next one may take long to arrive.
    Pause,
}

impl Source {
    /// Passes each record to `take` until it breaks or the source ends.
    pub(crate) fn read(
        self,
        separator: u8,
        mut take: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        match self {
            Self::Stream(stream) => read_stream(stream, separator, take),
            Self::Words(words) => Ok(words
                .into_iter()
                .map(OsString::into_vec)
                .try_for_each(|word| take(Record::Line(&word)))),
        }
    }
}

/// Maximum length of a line or NUL record, in bytes. The kernel accepts no longer argument.
pub(crate) const MAX_LINE: usize = 128 * 1024;

fn read_stream(
    mut stream: Box<dyn BufRead + Send>,
    separator: u8,
    mut take: impl FnMut(Record<'_>) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let mut lines = Lines { separator, open: Vec::new(), number: 1 };
    loop {
        let chunk = match stream.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            chunk => chunk?,
        };
        if chunk.is_empty() {
            return Ok(lines.take_open(&mut take));
        }
        let length = chunk.len();
        let taken = lines.take_chunk(chunk, &mut take)?;
        if taken.is_break() || take(Record::Pause).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        stream.consume(length);
    }
}

/// Splits a stream into lines.
struct Lines {
    separator: u8,
    /// The beginning of a line whose end is not read yet.
    open: Vec<u8>,
    /// The number of that line, counted from 1.
    number: u64,
}

impl Lines {
    /// Takes the lines that end in `chunk`. Fails if a line is too long.
    fn take_chunk(
        &mut self,
        mut chunk: &[u8],
        take: &mut impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        while let Some(end) = chunk.iter().position(|byte| *byte == self.separator) {
            self.extend(&chunk[..end])?;
            if self.take_open(take).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.open.clear();
            self.number += 1;
            chunk = &chunk[end + 1..];
        }
        self.extend(chunk)?;
        Ok(ControlFlow::Continue(()))
    }

    fn extend(&mut self, part: &[u8]) -> io::Result<()> {
        if self.open.len() + part.len() > MAX_LINE {
            let name = if self.separator == 0 { "record" } else { "line" };
            let number = self.number;
            let text = format!("{name} {number} is longer than {MAX_LINE} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.open.extend_from_slice(part);
        Ok(())
    }

    fn take_open(
        &self,
        take: &mut impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if is_blank(&self.open, self.separator) {
            ControlFlow::Continue(())
        } else {
            take(Record::Line(&self.open))
        }
    }
}

/// Returns whether to skip a record. Blank lines are formatting; between NULs, every byte
/// counts.
fn is_blank(record: &[u8], separator: u8) -> bool {
    record.is_empty()
        || (separator == b'\n' && record.iter().all(u8::is_ascii_whitespace))
}

/// A line whose priority word, counted from 1, is missing or not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoPriority(usize);

impl fmt::Display for NoPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--priority-field expects a whole number as word {}", self.0)
    }
}

/// Splits a line into its priority, which is word number `field`, and the rest.
pub(crate) fn split_priority(
    line: &[u8],
    field: usize,
) -> Result<(i32, Key), NoPriority> {
    let none = NoPriority(field);
    let (start, end) = nth_word(line, field).ok_or(none)?;
    let word = std::str::from_utf8(&line[start..end]).map_err(|_| none)?;
    let priority = word.parse().map_err(|_| none)?;
    let (before, after) = (&line[..start], line[end..].trim_ascii_start());
    let key = if after.is_empty() {
        before.trim_ascii().to_vec()
    } else {
        [before, after].concat().trim_ascii().to_vec()
    };
    if key.is_empty() { Err(none) } else { Ok((priority, key)) }
}

/// Returns the start and end of word number `field`, counted from 1.
fn nth_word(line: &[u8], field: usize) -> Option<(usize, usize)> {
    let mut at = 0;
    for number in 1.. {
        at += line[at..].iter().position(|byte| !byte.is_ascii_whitespace())?;
        let length = line[at..].iter().position(u8::is_ascii_whitespace);
        let end = length.map_or(line.len(), |length| at + length);
        if number == field {
            return Some((at, end));
        }
        at = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &'static [u8], separator: u8) -> Vec<Key> {
        let mut seen = Vec::new();
        let source = Source::Stream(Box::new(text));
        let ended = source.read(separator, |record| {
            if let Record::Line(line) = record {
                seen.push(line.to_vec());
            }
            ControlFlow::Continue(())
        });
        assert!(ended.unwrap().is_continue());
        seen
    }

    #[test]
    fn blank_lines_are_skipped() {
        assert_eq!(records(b"a\n\n  \nb c\nlast", b'\n'), [&b"a"[..], b"b c", b"last"]);
        assert_eq!(records(b"", b'\n'), Vec::<Key>::new());
    }

    #[test]
    fn keys_can_contain_any_bytes() {
        assert_eq!(records(b"\xff\xfe\n'\"\\\n", b'\n'), [&b"\xff\xfe"[..], b"'\"\\"]);
        assert_eq!(records(b"a\nb\0\0c", 0), [&b"a\nb"[..], b"c"]);
        assert_eq!(records(b" \0\n\0", 0), [b" ", b"\n"]);
    }

    #[test]
    fn line_can_span_chunks_and_each_chunk_ends_in_a_pause() {
        let pieces: Box<dyn BufRead + Send> =
            Box::new(io::BufReader::with_capacity(4, &b"ab\nlonger\nc"[..]));
        let mut seen = Vec::new();
        let ended = Source::Stream(pieces).read(b'\n', |record| {
            seen.push(match record {
                Record::Line(line) => String::from_utf8(line.to_vec()).unwrap(),
                Record::Pause => "-".to_owned(),
            });
            ControlFlow::Continue(())
        });
        assert!(ended.unwrap().is_continue());
        assert_eq!(seen, ["ab", "-", "-", "longer", "-", "c"]);
    }

    #[test]
    fn reading_stops_when_the_callback_breaks() {
        let mut left = 2;
        let source = Source::Words(["a", "b", "c"].map(OsString::from).into());
        let ended = source.read(b'\n', |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(ended.unwrap().is_break());
        assert_eq!(left, 0);
    }

    #[test]
    fn priority_is_a_word_of_the_line() {
        let split = |line: &str, field| {
            split_priority(line.as_bytes(), field)
                .map(|(priority, key)| (priority, String::from_utf8(key).unwrap()))
        };
        assert_eq!(split("7 a b", 1), Ok((7, "a b".to_owned())));
        assert_eq!(split("a -3 b", 2), Ok((-3, "a b".to_owned())));
        assert_eq!(split(" a\t9 ", 2), Ok((9, "a".to_owned())));
        for line in ["a b", "7", "", "1.5 a", "99999999999 a"] {
            assert_eq!(split(line, 1), Err(NoPriority(1)), "{line}");
        }
    }
}
