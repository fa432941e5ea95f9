//! The two streams that we print to, and the status below them.
//!
//! # Invariants
//!
//! 1. While a status stands on the terminal, the cursor is where it begins. What erases
//!    from there to the end of the screen takes all of it away, whatever has become of its
//!    lines when the window was resized, and what is typed meanwhile only stands over it.
//! 2. It is drawn with wrapping off: each of its lines takes one line of the window, by
//!    the terminal's own idea of how wide characters are.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::progress::RunningKey;
use crate::plan::Progress;

/// How many running keys are shown: terminals struggle with many moving lines.
const RUNNING_SHOWN: usize = 8;

const ERASE: &str = "\r\x1b[J";
const UP: &str = "\x1b[A";
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// Prints whole pieces, one at a time.
#[derive(Debug)]
pub(crate) struct Screen {
    draws: bool,
    /// Both streams lead to the terminal.
    shared: bool,
    /// Held for a piece that goes to both streams.
    below: Mutex<Below>,
}

/// What stands below all that was printed.
#[derive(Debug)]
struct Below {
    /// The status as it was drawn; empty if there is none.
    status: String,
    /// What was printed last has ended its line.
    line_ended: bool,
}

impl Screen {
    pub(crate) fn new(progress: Progress) -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            draws: terminal && progress == Progress::Bar,
            shared: terminal && io::stdout().is_terminal(),
            below: Mutex::new(Below { status: String::new(), line_ended: true }),
        }
    }

    fn below(&self) -> MutexGuard<'_, Below> {
        self.below.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `write` write to the standard output and the standard error, alone.
    pub(crate) fn print(
        &self,
        write: impl FnOnce(&mut dyn Write, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut below = self.below();
        let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
        below.erase(&mut err);
        let ended = Cell::new(below.line_ended);
        let printed = write(
            &mut Watched { to: &mut out, line_ended: self.shared.then_some(&ended) },
            &mut Watched { to: &mut err, line_ended: Some(&ended) },
        );
        let printed = printed.and_then(|()| out.flush());
        below.line_ended = ended.get();
        if self.shared {
            below.redraw(&mut err);
        } else {
            // Whoever reads the output may be about to print it on this very terminal.
            below.status.clear();
        }
        printed
    }

    /// Says something of our own, whole lines of it.
    pub(crate) fn say(&self, text: &str) {
        let (mut below, mut err) = (self.below(), io::stderr().lock());
        below.erase(&mut err);
        below.end_line(&mut err);
        put(&mut err, text);
        below.redraw(&mut err);
    }

    /// Draws the status and the keys that run longest.
    pub(crate) fn draw(&self, status: &str, running: &[RunningKey]) {
        if !self.draws {
            return;
        }
        let mut lines = vec![format!("requeue  {status}")];
        let shown = running.iter().take(RUNNING_SHOWN);
        lines.extend(shown.map(|key| format!("  {}", key.line())));
        if running.len() > RUNNING_SHOWN {
            lines.push(format!("  and {} more", running.len() - RUNNING_SHOWN));
        }
        let (mut below, mut err) = (self.below(), io::stderr().lock());
        below.status = frame(&lines, Window::of(&err));
        below.redraw(&mut err);
    }

    /// Takes the status away.
    pub(crate) fn clear(&self) {
        let mut below = self.below();
        below.erase(&mut io::stderr().lock());
        below.status.clear();
    }
}

impl Below {
    fn erase(&self, err: &mut dyn Write) {
        if !self.status.is_empty() {
            put(err, ERASE);
        }
    }

    fn redraw(&mut self, err: &mut dyn Write) {
        if !self.status.is_empty() {
            self.end_line(err);
            put(err, &self.status);
        }
    }

    /// Begins a line, unless one has begun.
    fn end_line(&mut self, err: &mut dyn Write) {
        if !std::mem::replace(&mut self.line_ended, true) {
            put(err, "\n");
        }
    }
}

/// Writes to the standard error. Nobody is left to tell if that is gone.
fn put(err: &mut dyn Write, text: &str) {
    err.write_all(text.as_bytes()).unwrap_or_default();
}

/// Notes whether what was written ends its line, where that matters.
struct Watched<'w> {
    to: &'w mut dyn Write,
    line_ended: Option<&'w Cell<bool>>,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.to.write(bytes)?;
        if let (Some(ended), Some(last)) = (self.line_ended, bytes[..length].last()) {
            ended.set(*last == b'\n');
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// How much room a terminal has.
#[derive(Clone, Copy, Debug)]
struct Window {
    rows: usize,
    columns: usize,
}

impl Window {
    /// The window behind a stream, without bounds if it does not tell.
    fn of(stream: impl AsFd) -> Self {
        let size = rustix::termios::tcgetwinsize(stream).ok();
        let told = |length: u16| Some(usize::from(length)).filter(|length| *length > 0);
        Self {
            rows: size.and_then(|size| told(size.ws_row)).unwrap_or(usize::MAX),
            columns: size.and_then(|size| told(size.ws_col)).unwrap_or(usize::MAX),
        }
    }

    /// The lines and the parts of them that there is room for. One row stays free, since
    /// some terminals keep a screen that is erased as a whole, to be scrolled back to.
    fn fit<'l, L: AsRef<str>>(
        self,
        lines: &'l [L],
    ) -> impl Iterator<Item = impl Iterator<Item = char> + 'l> {
        let fit = move |line: &'l L| line.as_ref().chars().take(self.columns);
        lines.iter().take(self.rows.saturating_sub(1).max(1)).map(fit)
    }
}

/// What draws `lines` over what stands from the cursor on, and leaves the cursor where
/// they begin.
fn frame(lines: &[String], window: Window) -> String {
    let mut text = format!("{ERASE}{WRAP_OFF}");
    let mut above = 0;
    for (row, line) in window.fit(lines).enumerate() {
        if row > 0 {
            text += "\r\n";
        }
        text.extend(line);
        above = row;
    }
    text + WRAP_ON + "\r" + &UP.repeat(above)
}

/// Writes a text over all that a terminal shows.
pub(crate) fn redraw(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let window = Window::of(&out);
    let lines: Vec<_> = text.lines().collect();
    let mut drawn = format!("\x1b[H{WRAP_OFF}");
    for line in window.fit(&lines) {
        drawn += "\x1b[2K";
        drawn.extend(line);
        drawn += "\r\n";
    }
    drawn += "\x1b[J";
    drawn += WRAP_ON;
    out.write_all(drawn.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> Vec<String> {
        (0..count).map(|line| format!("line {line}")).collect()
    }

    /// A key that was wider than the window was wrapped, and each redraw left a line
    /// behind, until the window was full of them.
    #[test]
    fn a_status_that_is_too_wide_is_cut_and_not_wrapped() {
        let window = Window { rows: 24, columns: 6 };
        let drawn = frame(&["a long line".to_owned(), "漢字漢字".to_owned()], window);
        let (cut, back) = ("a long\r\n漢字漢字", "\r\x1b[A");
        assert_eq!(drawn, format!("{ERASE}{WRAP_OFF}{cut}{WRAP_ON}{back}"));
    }

    #[test]
    fn a_status_is_less_high_than_the_window() {
        let window = Window { rows: 4, columns: 80 };
        let drawn = frame(&lines(10), window);
        assert!(drawn.contains("line 2") && !drawn.contains("line 3"), "{drawn:?}");
        assert!(drawn.ends_with("\r\x1b[A\x1b[A"), "{drawn:?}");
        let alone = frame(&lines(1), window);
        assert!(alone.ends_with(&format!("line 0{WRAP_ON}\r")), "{alone:?}");
    }

    /// Output without a newline at its end was drawn over by the status.
    #[test]
    fn a_status_begins_on_a_line_of_its_own() {
        let mut below = Below { status: "status".to_owned(), line_ended: false };
        let mut drawn = Vec::new();
        below.redraw(&mut drawn);
        below.redraw(&mut drawn);
        assert_eq!(String::from_utf8(drawn).unwrap(), "\nstatusstatus");
    }

    #[test]
    fn whether_a_line_has_ended_is_seen_by_its_last_byte() {
        let ended = Cell::new(true);
        for (text, wanted) in [("a", false), ("", false), ("\nb\n", true), ("c", false)] {
            let mut sink = io::sink();
            let mut stream = Watched { to: &mut sink, line_ended: Some(&ended) };
            stream.write_all(text.as_bytes()).unwrap();
            assert_eq!(ended.get(), wanted, "{text:?}");
        }
    }
}
