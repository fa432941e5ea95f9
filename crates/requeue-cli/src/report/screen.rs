//! Standard output, standard error, and the status below them.
//!
//! # Invariants
//!
//! 1. While a status is on the terminal, the cursor is at its start. Erasing from there to the
//!    end of the screen removes all of it, even if the window was resized; typed text only
//!    overwrites it.
//! 2. The status is drawn with wrapping off. Each of its lines takes one row, however wide the
//!    terminal draws its characters.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::progress::{Bar, RunningKey};
use crate::plan::Progress;

/// How many running keys are shown. Terminals are slow with many changing lines.
const RUNNING_SHOWN: usize = 8;

const ERASE: &str = "\r\x1b[J";
const UP: &str = "\x1b[A";
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Prints blocks of output without interleaving them.
#[derive(Debug)]
pub(crate) struct Screen {
    draws: bool,
    colours: bool,
    /// Both streams go to the terminal.
    shared: bool,
    /// Locked while a block is printed to either stream.
    status: Mutex<Status>,
}

/// The status below the printed output.
#[derive(Debug)]
struct Status {
    /// The text with its escape sequences, or empty.
    drawn: String,
    /// The printed output ends with a newline.
    line_ended: bool,
    /// The process is being stopped; the terminal belongs to the shell.
    suspended: bool,
}

impl Screen {
    pub(crate) fn new(progress: Progress) -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            draws: terminal && progress == Progress::Bar,
            colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            shared: terminal && io::stdout().is_terminal(),
            status: Mutex::new(Status {
                drawn: String::new(),
                line_ended: true,
                suspended: false,
            }),
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `write` write a block to standard output and standard error.
    pub(crate) fn print(
        &self,
        write: impl FnOnce(&mut dyn Write, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut status = self.status();
        let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
        status.erase(&mut err);
        let ended = Cell::new(status.line_ended);
        let printed = write(
            &mut Watched { to: &mut out, line_ended: self.shared.then_some(&ended) },
            &mut Watched { to: &mut err, line_ended: Some(&ended) },
        );
        let printed = printed.and_then(|()| out.flush());
        status.line_ended = ended.get();
        if self.shared {
            status.redraw(&mut err);
        } else {
            // The reader of the output may print it on this terminal.
            status.drawn.clear();
        }
        printed
    }

    /// Prints whole lines to standard error.
    pub(crate) fn say(&self, text: &str) {
        let (mut status, mut err) = (self.status(), io::stderr().lock());
        status.erase(&mut err);
        status.end_line(&mut err);
        put(&mut err, text);
        status.redraw(&mut err);
    }

    /// Draws the status line and the longest running keys.
    pub(super) fn draw(&self, bar: &Bar, running: &[RunningKey]) {
        if !self.draws {
            return;
        }
        let mut lines = vec![bar.text.clone()];
        let shown = running.iter().take(RUNNING_SHOWN);
        lines.extend(shown.map(|key| format!("  {}", key.line())));
        if running.len() > RUNNING_SHOWN {
            lines.push(format!("  and {} more", running.len() - RUNNING_SHOWN));
        }
        let (mut status, mut err) = (self.status(), io::stderr().lock());
        if status.suspended {
            return;
        }
        status.drawn = frame(&lines, Window::of(&err));
        if let Some(alarm) = bar.alarm.as_deref().filter(|_| self.colours) {
            let red = format!("{RED}{alarm}{PLAIN}");
            status.drawn = status.drawn.replacen(alarm, &red, 1);
        }
        status.redraw(&mut err);
    }

    /// Returns the width of the terminal, or no bound without a terminal.
    pub(super) fn columns(&self) -> usize {
        if self.draws { Window::of(io::stderr()).columns } else { usize::MAX }
    }

    /// Removes the status and stops drawing it, or allows drawing again.
    pub(super) fn suspend(&self, suspended: bool) {
        self.clear();
        self.status().suspended = suspended;
    }

    /// Removes the status.
    pub(crate) fn clear(&self) {
        let mut status = self.status();
        status.erase(&mut io::stderr().lock());
        status.drawn.clear();
    }
}

impl Status {
    fn erase(&self, err: &mut dyn Write) {
        if !self.drawn.is_empty() {
            put(err, ERASE);
        }
    }

    fn redraw(&mut self, err: &mut dyn Write) {
        if !self.drawn.is_empty() {
            self.end_line(err);
            put(err, &self.drawn);
        }
    }

    /// Starts a new line unless the cursor is at the start of one.
    fn end_line(&mut self, err: &mut dyn Write) {
        if !std::mem::replace(&mut self.line_ended, true) {
            put(err, "\n");
        }
    }
}

/// Writes to standard error. Ignores failures, which could not be reported anyway.
fn put(err: &mut dyn Write, text: &str) {
    err.write_all(text.as_bytes()).unwrap_or_default();
}

/// Tracks whether the output ends with a newline, if it goes to the terminal.
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

/// The size of a terminal.
#[derive(Clone, Copy, Debug)]
struct Window {
    rows: usize,
    columns: usize,
}

impl Window {
    /// Returns the size of the terminal of a stream, or no bounds if it is unknown.
    fn of(stream: impl AsFd) -> Self {
        let size = rustix::termios::tcgetwinsize(stream).ok();
        let known = |length: u16| Some(usize::from(length)).filter(|length| *length > 0);
        Self {
            rows: size.and_then(|size| known(size.ws_row)).unwrap_or(usize::MAX),
            columns: size.and_then(|size| known(size.ws_col)).unwrap_or(usize::MAX),
        }
    }

    /// Cuts lines to the size of the window. One row stays free: some terminals save a full
    /// screen to their scrollback when it is erased.
    fn fit<'l, L: AsRef<str>>(
        self,
        lines: &'l [L],
    ) -> impl Iterator<Item = impl Iterator<Item = char> + 'l> {
        let fit = move |line: &'l L| line.as_ref().chars().take(self.columns);
        lines.iter().take(self.rows.saturating_sub(1).max(1)).map(fit)
    }
}

impl Window {
    /// Like [`fit`](Self::fit), but marks lines that are cut and counts lines left out.
    fn fit_noting(self, lines: &[&str]) -> Vec<String> {
        let rows = self.rows.saturating_sub(1).max(1);
        let shown = if lines.len() > rows { rows - 1 } else { lines.len() };
        let cut = |line: &&str| {
            if line.chars().count() <= self.columns {
                return (*line).to_owned();
            }
            line.chars().take(self.columns.saturating_sub(1)).chain(['…']).collect()
        };
        let mut fitted: Vec<String> = lines[..shown].iter().map(cut).collect();
        if shown < lines.len() {
            let more = lines.len() - shown;
            fitted.push(cut(&&*format!("… {more} more lines; enlarge the window")));
        }
        fitted
    }
}

/// Formats a status: erases from the cursor on, draws `lines`, and returns to their start.
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

/// Replaces the contents of the terminal.
pub(crate) fn redraw(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let window = Window::of(&out);
    let lines: Vec<_> = text.lines().collect();
    let mut drawn = format!("\x1b[H{WRAP_OFF}");
    for line in window.fit_noting(&lines) {
        drawn += "\x1b[2K";
        drawn += &line;
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

    /// A key wider than the window once wrapped, and each redraw left one more line behind.
    #[test]
    fn wide_status_is_cut_instead_of_wrapped() {
        let window = Window { rows: 24, columns: 6 };
        let drawn = frame(&["a long line".to_owned(), "漢字漢字".to_owned()], window);
        let (cut, back) = ("a long\r\n漢字漢字", "\r\x1b[A");
        assert_eq!(drawn, format!("{ERASE}{WRAP_OFF}{cut}{WRAP_ON}{back}"));
    }

    #[test]
    fn status_is_lower_than_the_window() {
        let window = Window { rows: 4, columns: 80 };
        let drawn = frame(&lines(10), window);
        assert!(drawn.contains("line 2") && !drawn.contains("line 3"), "{drawn:?}");
        assert!(drawn.ends_with("\r\x1b[A\x1b[A"), "{drawn:?}");
        let alone = frame(&lines(1), window);
        assert!(alone.ends_with(&format!("line 0{WRAP_ON}\r")), "{alone:?}");
    }

    /// `watch` once showed 5 of 10 failing keys in a small window, and said nothing.
    #[test]
    fn lines_left_out_are_counted() {
        let window = Window { rows: 4, columns: 30 };
        let text = lines(10);
        let text: Vec<_> = text.iter().map(String::as_str).collect();
        let wanted = ["line 0", "line 1", "… 8 more lines; enlarge the wi…"];
        assert_eq!(
            window.fit_noting(&text),
            wanted.map(|line| {
                if line.chars().count() > 30 {
                    line.chars().take(29).chain(['…']).collect()
                } else {
                    line.to_owned()
                }
            })
        );
        assert_eq!(window.fit_noting(&text[..3]), &text[..3]);
    }

    /// The status once overwrote output that did not end with a newline.
    #[test]
    fn status_starts_on_a_new_line() {
        let mut status =
            Status { drawn: "status".to_owned(), line_ended: false, suspended: false };
        let mut drawn = Vec::new();
        status.redraw(&mut drawn);
        status.redraw(&mut drawn);
        assert_eq!(String::from_utf8(drawn).unwrap(), "\nstatusstatus");
    }

    #[test]
    fn last_byte_tells_whether_a_line_has_ended() {
        let ended = Cell::new(true);
        for (text, wanted) in [("a", false), ("", false), ("\nb\n", true), ("c", false)] {
            let mut sink = io::sink();
            let mut stream = Watched { to: &mut sink, line_ended: Some(&ended) };
            stream.write_all(text.as_bytes()).unwrap();
            assert_eq!(ended.get(), wanted, "{text:?}");
        }
    }
}
