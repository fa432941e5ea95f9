//! The two streams that we print to, and the status line below them.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::progress::RunningKey;
use crate::plan::Progress;

/// How many running keys are shown: terminals struggle with many moving lines.
const RUNNING_SHOWN: usize = 8;

/// Prints whole pieces, one at a time.
#[derive(Debug)]
pub(crate) struct Screen {
    bar: Option<ProgressBar>,
    /// Held for a piece that goes to both streams.
    turn: Mutex<()>,
}

impl Screen {
    pub(crate) fn new(progress: Progress) -> Self {
        Self { bar: (progress == Progress::Bar).then(bar), turn: Mutex::new(()) }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `write` write to the standard output and the standard error, alone.
    pub(crate) fn print(
        &self,
        write: impl FnOnce(&mut dyn Write, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let turn = self.turn();
        let printed = self.above_bar(|| {
            let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
            write(&mut out, &mut err)?;
            out.flush()
        });
        drop(turn);
        printed
    }

    /// Says something of our own. Nobody is left to tell if the standard error is gone.
    pub(crate) fn say(&self, text: &str) {
        let turn = self.turn();
        self.above_bar(|| {
            io::stderr().lock().write_all(text.as_bytes()).unwrap_or_default();
        });
        drop(turn);
    }

    fn above_bar<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Draws the status and the keys that run longest.
    pub(crate) fn draw(&self, status: &str, running: &[RunningKey]) {
        let Some(bar) = &self.bar else { return };
        let mut text = format!("requeue  {status}");
        for key in running.iter().take(RUNNING_SHOWN) {
            text.push_str("\n  ");
            text.push_str(&key.line());
        }
        if let Some(more) = running.len().checked_sub(RUNNING_SHOWN).filter(|n| *n > 0) {
            text.push_str("\n  and ");
            text.push_str(&more.to_string());
            text.push_str(" more");
        }
        bar.set_message(text);
        bar.tick();
    }

    /// Takes the status line away.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let style = ProgressStyle::with_template("{msg}");
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::ZERO); // no thread: we draw when there is news
    bar
}
