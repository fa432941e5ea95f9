//! How a queue stands, once or again and again.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use anyhow::{Context, Result};
use requeue_store::{Error, Store};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::flags::{StatusFlags, WatchFlags};
use crate::report::{self, chain};
use crate::store::Place;

pub(crate) fn status(flags: StatusFlags) -> Result<u8> {
    let StatusFlags { store, json, limit } = flags;
    let text = super::on_store(store, async |store| look(&*store, json, limit).await)?;
    report::page(text.as_bytes())?;
    Ok(0)
}

async fn look(store: &dyn Store, json: bool, limit: usize) -> Result<String, Error> {
    let stats = store.stats().await?;
    let failing = store.failing(limit).await?;
    let workers = store.workers().await?;
    let tell = if json { report::status_json } else { report::status_text };
    Ok(tell(&store.describe(), &stats, &failing, &workers))
}

/// How each look is shown.
#[derive(Clone, Copy)]
enum Show {
    Over,
    After,
    Lines,
}

/// Tells how the queue stands until a signal comes.
pub(crate) fn watch(flags: WatchFlags) -> Result<u8> {
    let WatchFlags { status, interval } = flags;
    let StatusFlags { store, json, limit } = status;
    let place = Place::of(store)?;
    let ends = ends()?;
    let runtime = super::runtime()?;
    let store = runtime.block_on(place.open_existing())?;
    let show = match json {
        true => Show::Lines,
        false if io::stdout().is_terminal() => Show::Over,
        false => Show::After,
    };
    let mut away = false;
    loop {
        match runtime.block_on(look(&*store, json, limit)) {
            Ok(text) => {
                if std::mem::take(&mut away) {
                    report::tell("the store is back");
                }
                show.text(&text)?;
            }
            Err(error) if error.is_transient() => {
                if !std::mem::replace(&mut away, true) {
                    report::tell(&format!("no answer, tried again: {}", chain(&error)));
                }
            }
            Err(error) => return Err(error).context("the store failed"),
        }
        match ends.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(0),
        }
    }
}

impl Show {
    fn text(self, text: &str) -> io::Result<()> {
        match self {
            Self::Over => report::redraw(text),
            Self::After => report::page(format!("{text}\n").as_bytes()),
            Self::Lines => report::page(text.as_bytes()),
        }
    }
}

/// Tells when a signal asks for the end.
fn ends() -> Result<Receiver<()>> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.context("cannot listen to signals")?;
    let (send, receive) = mpsc::channel();
    let listen = move || {
        if signals.forever().next().is_some() {
            // Whoever waited may be gone.
            send.send(()).unwrap_or_default();
        }
    };
    let thread = thread::Builder::new().name("signal listener".to_owned());
    thread.spawn(listen).context("cannot start the signal listener")?;
    Ok(receive)
}
