//! Buffers the output of a run: in memory, or in a file if it is large.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::text::last_line;

/// Bytes kept in memory for each stream of each worker. The rest goes to a file.
const IN_MEMORY: usize = 1024 * 1024;

/// Bytes at the end of a file that are searched for its last line.
const TAIL: u64 = 4096;

/// Buffered output: first the file, if there is one, then the memory.
#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    file: Option<File>,
    memory: Vec<u8>,
}

impl OutputBuffer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
        if self.memory.len() >= IN_MEMORY {
            self.spill();
        }
    }

    /// Moves the memory to the file. If that fails, it stays in memory.
    fn spill(&mut self) {
        if self.file.is_none() {
            self.file = unnamed_file().ok();
        }
        let Some(file) = &mut self.file else { return };
        let before = file.stream_position();
        if file.write_all(&self.memory).is_ok() {
            self.memory.clear();
        } else if let Ok(before) = before {
            // Remove a partial write, which would be printed twice.
            file.set_len(before).unwrap_or_default();
            file.seek(SeekFrom::Start(before)).unwrap_or_default();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.file.is_none() && self.memory.is_empty()
    }

    /// Returns the last non-blank line.
    pub(super) fn last_line(&mut self) -> String {
        let last = last_line(&self.memory);
        match &mut self.file {
            Some(file) if last.is_empty() => last_line_of(file).unwrap_or_default(),
            _ => last,
        }
    }

    /// Writes everything, with the tag before each line if there is one.
    pub(super) fn write(
        &mut self,
        tag: Option<&[u8]>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let mut lines = Tagged { tag, at_start: true, to };
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0))?;
            io::copy(file, &mut lines)?;
        }
        lines.write_all(&self.memory)?;
        lines.end()
    }
}

/// Creates a temporary file that only this user can open, and that is deleted when it is
/// closed.
pub(crate) fn unnamed_file() -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("requeue-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Returns the last non-blank line of a file.
pub(super) fn last_line_of(file: &mut File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(last_line(&tail))
}

/// Writes a tag and a tab before each line.
struct Tagged<'w> {
    tag: Option<&'w [u8]>,
    at_start: bool,
    to: &'w mut dyn Write,
}

impl Tagged<'_> {
    /// Ends the last line if it is tagged. Untagged output is not changed.
    fn end(self) -> io::Result<()> {
        if self.tag.is_some() && !self.at_start {
            self.to.write_all(b"\n")
        } else {
            Ok(())
        }
    }
}

impl Write for Tagged<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tag) = self.tag else {
            return self.to.write(bytes);
        };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.at_start {
                self.to.write_all(tag)?;
                self.to.write_all(b"\t")?;
            }
            self.to.write_all(line)?;
            self.at_start = line.ends_with(b"\n");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(parts: &[&[u8]]) -> OutputBuffer {
        let mut buffer = OutputBuffer::default();
        for part in parts {
            buffer.push(part);
        }
        buffer
    }

    fn written(buffer: &mut OutputBuffer, tag: Option<&[u8]>) -> Vec<u8> {
        let mut text = Vec::new();
        buffer.write(tag, &mut text).unwrap();
        text
    }

    #[test]
    fn every_line_is_tagged() {
        let mut output = buffer(&[b"a\n\nb", b"c"]);
        assert_eq!(written(&mut output, Some(b"k")), b"k\ta\nk\t\nk\tbc\n");
        assert_eq!(written(&mut output, None), b"a\n\nbc");
        assert_eq!(written(&mut buffer(&[]), Some(b"k")), b"");
    }

    #[test]
    fn large_output_goes_to_a_file() {
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let mut output = buffer(&vec![&line[..]; 3000]);
        assert!(output.memory.len() < IN_MEMORY && output.file.is_some());
        assert_eq!(written(&mut output, None), line.repeat(3000));
        let tagged = written(&mut output, Some(b"k"));
        assert_eq!(tagged, [b"k\t", &line[..]].concat().repeat(3000));
    }

    #[test]
    fn last_line_can_be_in_the_file() {
        let long = vec![b'x'; IN_MEMORY];
        let mut output = buffer(&[&long, b"\nlast\n", &vec![b'\n'; IN_MEMORY]]);
        assert_eq!(output.last_line(), "", "too far from the end");
        output.push(b"really last\n");
        assert_eq!(output.last_line(), "really last");
        assert_eq!(buffer(&[&long[..IN_MEMORY - 5], b"\nend\n"]).last_line(), "end");
    }
}
