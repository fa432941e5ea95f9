//! `requeue status` and `requeue watch`.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use anyhow::{Context, Result};
use requeue_store::{Error, Store};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::address::StoreAddress;
use crate::flags::{StatusFlags, WatchFlags};
use crate::report::{self, chain};

pub(crate) fn status(flags: StatusFlags) -> Result<u8> {
    let StatusFlags { store, json, limit } = flags;
    let text = super::on_store(store, async |store| fetch(&*store, json, limit).await)?;
    report::page(text.as_bytes())?;
    Ok(0)
}

/// Reads the state of a queue and formats it.
async fn fetch(store: &dyn Store, json: bool, limit: usize) -> Result<String, Error> {
    let stats = store.stats().await?;
    let failing = store.failing(limit).await?;
    let workers = store.workers().await?;
    let format = if json { report::status_json } else { report::status_text };
    Ok(format(&store.describe(), &stats, &failing, &workers))
}

/// How updates are shown.
#[derive(Clone, Copy)]
enum Display {
    /// Each update replaces the one before.
    Redraw,
    /// Updates follow each other, with blank lines between them.
    Append,
    /// One JSON object per line.
    JsonLines,
}

/// Shows the state of a queue repeatedly until a signal.
pub(crate) fn watch(flags: WatchFlags) -> Result<u8> {
    let WatchFlags { status, interval } = flags;
    let StatusFlags { store, json, limit } = status;
    let address = StoreAddress::from_flags(store)?;
    let signalled = signalled()?;
    let runtime = super::runtime()?;
    let store = runtime.block_on(address.open_existing())?;
    let display = match json {
        true => Display::JsonLines,
        false if io::stdout().is_terminal() => Display::Redraw,
        false => Display::Append,
    };
    let mut unreachable = false;
    loop {
        match runtime.block_on(fetch(&*store, json, limit)) {
            Ok(text) => {
                if std::mem::take(&mut unreachable) {
                    report::note("store reachable again");
                }
                display.show(&text)?;
            }
            Err(error) if error.is_transient() => {
                if !std::mem::replace(&mut unreachable, true) {
                    let why = chain(&error);
                    report::note(&format!("store unreachable, retrying: {why}"));
                }
            }
            Err(error) => return Err(error).context("store failed"),
        }
        match signalled.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(0),
        }
    }
}

impl Display {
    fn show(self, text: &str) -> io::Result<()> {
        match self {
            Self::Redraw => report::redraw(text),
            Self::Append => report::page(format!("{text}\n").as_bytes()),
            Self::JsonLines => report::page(text.as_bytes()),
        }
    }
}

/// Returns a channel that receives a message on the first signal.
fn signalled() -> Result<Receiver<()>> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.context("cannot install signal handlers")?;
    let (send, receive) = mpsc::channel();
    let listen = move || {
        if signals.forever().next().is_some() {
            // Fails only if the receiver is already dropped.
            send.send(()).unwrap_or_default();
        }
    };
    let thread = thread::Builder::new().name("signal handler".to_owned());
    thread.spawn(listen).context("cannot start the signal handler")?;
    Ok(receive)
}
