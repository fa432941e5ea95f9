//! The destination of the output of one run.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::output_buffer::{OutputBuffer, last_line_of};
use super::screen::Screen;
use super::text::{last_line, tag as tag_text};
use crate::command::{Exit, Sink, Stream, Wiring};
use crate::plan::{Output, Shown};

/// Receives the output of one run, and remembers the last line of its standard error.
#[derive(Debug)]
pub(crate) enum Capture<'r> {
    Grouped(Grouped<'r>),
    Lines(Lines<'r>),
    Files { out: PathBuf, err: PathBuf },
}

impl<'r> Capture<'r> {
    pub(super) fn new(output: &'r Output, key: &'r [u8], screen: &'r Screen) -> Self {
        let tagged = |tag: bool| tag.then(|| tag_text(key));
        match output {
            Output::Grouped { tag, only } => {
                Self::Grouped(Grouped::new(screen, tagged(*tag), *only))
            }
            Output::Lines { tag } => Self::Lines(Lines::new(screen, tagged(*tag))),
            Output::Files(dir) => {
                let name = file_name(key);
                Self::Files {
                    out: with_suffix(dir, &name, ".out"),
                    err: with_suffix(dir, &name, ".err"),
                }
            }
        }
    }

    /// Connects the output streams of a command before it starts.
    pub(crate) fn connect(&self, command: &mut Command) -> io::Result<Wiring> {
        match self {
            Self::Grouped(_) | Self::Lines(_) => Ok(Wiring::Pipes),
            Self::Files { out, err } => {
                command.stdout(File::create(out)?).stderr(File::create(err)?);
                Ok(Wiring::Files)
            }
        }
    }

    /// Prints the remaining output. Returns the last line of standard error, and whether
    /// printing succeeded.
    pub(crate) fn finish(self, exit: Exit) -> (String, io::Result<()>) {
        match self {
            Self::Grouped(grouped) => grouped.finish(exit),
            Self::Lines(lines) => lines.finish(),
            Self::Files { err, .. } => {
                let last = File::open(err).and_then(|mut file| last_line_of(&mut file));
                (last.unwrap_or_default(), Ok(()))
            }
        }
    }
}

impl Sink for Capture<'_> {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        match (self, stream) {
            (Self::Grouped(grouped), Stream::Out) => grouped.out.push(bytes),
            (Self::Grouped(grouped), Stream::Err) => grouped.err.push(bytes),
            (Self::Lines(lines), _) => lines.take(stream, bytes),
            (Self::Files { .. }, _) => {}
        }
    }
}

/// Prints all output at the end of the run.
#[derive(Debug)]
pub(crate) struct Grouped<'r> {
    screen: &'r Screen,
    tag: Option<Vec<u8>>,
    only: Shown,
    out: OutputBuffer,
    err: OutputBuffer,
}

impl<'r> Grouped<'r> {
    fn new(screen: &'r Screen, tag: Option<Vec<u8>>, only: Shown) -> Self {
        Self {
            screen,
            tag,
            only,
            out: OutputBuffer::default(),
            err: OutputBuffer::default(),
        }
    }

    fn finish(mut self, exit: Exit) -> (String, io::Result<()>) {
        let last = self.err.last_line();
        let hidden = self.only == Shown::Failed && exit.is_success();
        let silent = self.out.is_empty() && self.err.is_empty();
        (last, if hidden || silent { Ok(()) } else { self.print() })
    }

    fn print(&mut self) -> io::Result<()> {
        self.screen.print(|out, err| {
            // Standard error may be closed while standard output is still read.
            self.err.write(self.tag.as_deref(), err).unwrap_or_default();
            self.out.write(self.tag.as_deref(), out)
        })
    }
}

/// Prints each line as soon as it is complete.
#[derive(Debug)]
pub(crate) struct Lines<'r> {
    screen: &'r Screen,
    tag: Option<Vec<u8>>,
    out: Vec<u8>,
    err: Vec<u8>,
    last: String,
    printed: io::Result<()>,
}

impl<'r> Lines<'r> {
    fn new(screen: &'r Screen, tag: Option<Vec<u8>>) -> Self {
        let (out, err) = (Vec::new(), Vec::new());
        Self { screen, tag, out, err, last: String::new(), printed: Ok(()) }
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let open = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        // Search only the new bytes: a line can arrive in thousands of pieces.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let (ends, rest) = bytes.split_at(end.unwrap_or(0));
        if ends.is_empty() {
            return open.extend_from_slice(rest);
        }
        let mut whole = std::mem::replace(open, rest.to_vec());
        whole.extend_from_slice(ends);
        self.print(stream, &whole);
    }

    fn print(&mut self, stream: Stream, text: &[u8]) {
        if stream == Stream::Err && !text.trim_ascii().is_empty() {
            self.last = last_line(text);
        }
        if text.is_empty() {
            return;
        }
        let mut whole = OutputBuffer::default();
        whole.push(text);
        let printed = self.screen.print(|out, err| match stream {
            Stream::Out => whole.write(self.tag.as_deref(), out),
            Stream::Err => {
                whole.write(self.tag.as_deref(), err).unwrap_or_default();
                Ok(())
            }
        });
        if self.printed.is_ok() {
            self.printed = printed;
        }
    }

    /// Prints an unfinished last line.
    fn finish(mut self) -> (String, io::Result<()>) {
        let (out, err) = (std::mem::take(&mut self.out), std::mem::take(&mut self.err));
        self.print(Stream::Out, &out);
        self.print(Stream::Err, &err);
        (self.last, self.printed)
    }
}

/// Maximum length of a name without its suffix. File systems allow 255 bytes.
const MAX_NAME: usize = 200;

/// Returns a file name for a key. Special bytes become `%` and two hexadecimal digits; a long
/// name is cut and ends in a hash.
fn file_name(key: &[u8]) -> String {
    let mut name = String::new();
    for (at, byte) in key.iter().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"-_+=,:@".contains(byte);
        if plain || (*byte == b'.' && at > 0) {
            name.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            write!(name, "%{byte:02X}").unwrap_or_default();
        }
    }
    if name.len() > MAX_NAME {
        name.truncate(MAX_NAME - 17);
        write!(name, "~{:016x}", fnv(key)).unwrap_or_default();
    }
    name
}

/// 64-bit FNV-1a: a stable hash, so a key has the same name in every run.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn with_suffix(dir: &Path, name: &str, suffix: &str) -> PathBuf {
    dir.join(OsString::from(format!("{name}{suffix}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_keys_have_different_file_names() {
        assert_eq!(file_name(b"src/main.rs"), "src%2Fmain.rs");
        assert_eq!(file_name(b".."), "%2E.");
        assert_eq!(file_name(b"a%2Fb"), "a%252Fb");
        let [long, longer] = [vec![b'x'; 300], vec![b'x'; 301]];
        assert_ne!(file_name(&long), file_name(&longer));
        assert_eq!(file_name(&long).len(), MAX_NAME);
    }
}
