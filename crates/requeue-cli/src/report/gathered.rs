//! The output of a run until the run ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use super::text::last_line;

/// As much as is kept in memory for each stream of each worker; the rest goes to a file.
const IN_MEMORY: usize = 1024 * 1024;

/// The end of a file that its last line is looked for in.
const TAIL: u64 = 4096;

/// Output in its order: first what is in the file, if there is one, then what is in memory.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    file: Option<File>,
    memory: Vec<u8>,
}

impl Gathered {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
        if self.memory.len() >= IN_MEMORY {
            self.spill();
        }
    }

    /// Moves what is in memory to the file. If that fails, it stays where it is.
    fn spill(&mut self) {
        if self.file.is_none() {
            self.file = nameless_file().ok();
        }
        let Some(file) = &mut self.file else { return };
        let before = file.stream_position();
        if file.write_all(&self.memory).is_ok() {
            self.memory.clear();
        } else if let Ok(before) = before {
            // Half of it may be there: it would be printed twice.
            file.set_len(before).unwrap_or_default();
            file.seek(SeekFrom::Start(before)).unwrap_or_default();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.file.is_none() && self.memory.is_empty()
    }

    /// The last line that is not blank.
    pub(super) fn last_line(&mut self) -> String {
        let last = last_line(&self.memory);
        match &mut self.file {
            Some(file) if last.is_empty() => last_line_of(file).unwrap_or_default(),
            _ => last,
        }
    }

    /// Writes all of it, each line with the tag before it if there is one.
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

/// A file that is gone as soon as it is closed.
fn nameless_file() -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("requeue-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// The last line of a file that is not blank.
pub(super) fn last_line_of(file: &mut File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(last_line(&tail))
}

/// Puts a tag and a tab before each line.
struct Tagged<'w> {
    tag: Option<&'w [u8]>,
    at_start: bool,
    to: &'w mut dyn Write,
}

impl Tagged<'_> {
    /// Ends the last line, which without a tag is the command's own affair.
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

    fn gathered(parts: &[&[u8]]) -> Gathered {
        let mut gathered = Gathered::default();
        for part in parts {
            gathered.push(part);
        }
        gathered
    }

    fn written(gathered: &mut Gathered, tag: Option<&[u8]>) -> Vec<u8> {
        let mut text = Vec::new();
        gathered.write(tag, &mut text).unwrap();
        text
    }

    #[test]
    fn each_line_is_tagged() {
        let mut output = gathered(&[b"a\n\nb", b"c"]);
        assert_eq!(written(&mut output, Some(b"k")), b"k\ta\nk\t\nk\tbc\n");
        assert_eq!(written(&mut output, None), b"a\n\nbc");
        assert_eq!(written(&mut gathered(&[]), Some(b"k")), b"");
    }

    #[test]
    fn much_output_does_not_stay_in_memory() {
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let mut output = gathered(&vec![&line[..]; 3000]);
        assert!(output.memory.len() < IN_MEMORY && output.file.is_some());
        assert_eq!(written(&mut output, None), line.repeat(3000));
        let tagged = written(&mut output, Some(b"k"));
        assert_eq!(tagged, [b"k\t", &line[..]].concat().repeat(3000));
    }

    #[test]
    fn the_last_line_may_be_in_the_file() {
        let long = vec![b'x'; IN_MEMORY];
        let mut output = gathered(&[&long, b"\nlast\n", &vec![b'\n'; IN_MEMORY]]);
        assert_eq!(output.last_line(), "", "too far from the end to be looked for");
        output.push(b"really last\n");
        assert_eq!(output.last_line(), "really last");
        assert_eq!(gathered(&[&long[..IN_MEMORY - 5], b"\nend\n"]).last_line(), "end");
    }
}
