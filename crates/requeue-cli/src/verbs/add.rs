//! Adding keys from the command line or a stream.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::{Added, Clock, SystemClock};
use requeue_store::{Add, Error, Key, Receipt, Store, When};
use tokio::runtime::Runtime;

use crate::USAGE;
use crate::flags::AddFlags;
use crate::input::{Record, Source, split_priority};
use crate::plan;
use crate::reader::BATCH;
use crate::report::{self, AddedKeys, count};
use crate::store::{PATIENCE, PAUSE, Place};

/// Keys on their way to a store.
struct Adder {
    runtime: Runtime,
    store: Arc<dyn Store>,
    when: When,
    /// Which word of a line is its priority, from 1.
    priority: Option<usize>,
    revive_after: Duration,
    unsent: Vec<Add>,
    added: AddedKeys,
    refused: u64,
}

pub(crate) fn add(flags: AddFlags) -> Result<u8> {
    let separator = plan::separator(flags.null);
    let sources = sources(&flags)?;
    let place = Place::of(flags.store)?;
    let runtime = super::runtime()?;
    let store = runtime.block_on(place.open_patiently(report::tell))?;
    let mut adder = Adder {
        runtime,
        store,
        when: flags.after.map_or(When::Now, When::After),
        priority: flags.priority.map(NonZeroUsize::get),
        revive_after: flags.revive_after,
        unsent: Vec::new(),
        added: AddedKeys::default(),
        refused: 0,
    };
    for source in sources {
        adder.read(source, separator)?;
    }
    report::tell(&report::added_text(&adder.added));
    Ok(if adder.refused > 0 { USAGE } else { 0 })
}

fn sources(flags: &AddFlags) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in &flags.arg_file {
        sources.push(Source::Stream(plan::open_keys(path)?));
    }
    if !flags.keys.is_empty() {
        sources.push(Source::Words(flags.keys.clone()));
    }
    if sources.is_empty() {
        sources.push(plan::standard_input());
    }
    Ok(sources)
}

impl Adder {
    fn read(&mut self, source: Source, separator: u8) -> Result<()> {
        let mut sent = Ok(());
        let read = source.read(separator, |record| {
            sent = match record {
                Record::Line(line) => self.put(line),
                Record::Pause => self.send(),
            };
            if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        sent?;
        // What was read is added, even if no more can be read.
        self.send()?;
        let read =
            read.with_context(|| format!("cannot read the keys; {}", self.known()));
        read.map(|_| ())
    }

    fn put(&mut self, line: &[u8]) -> Result<()> {
        match self.wish(line) {
            Ok(add) => self.unsent.push(add),
            Err(why) => {
                self.refused += 1;
                report::tell(&report::left_out(line, &why));
            }
        }
        if self.unsent.len() < BATCH { Ok(()) } else { self.send() }
    }

    /// What a line asks for, or why it cannot be done.
    fn wish(&self, line: &[u8]) -> Result<Add, String> {
        if line.is_empty() {
            // Mostly a variable of a shell that is not set.
            return Err("the key is empty".to_owned());
        }
        let (priority, key) = match self.priority {
            Some(field) => split_priority(line, field).map_err(|why| why.to_string())?,
            None => (0, line.to_vec()),
        };
        let add = Key::new(key).map(|key| Add::new(key, self.when));
        add.and_then(|add| {
            Add { revive_after: self.revive_after, ..add }.with_priority(priority)
        })
        .map_err(|error| error.to_string())
    }

    fn send(&mut self) -> Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let adds = std::mem::take(&mut self.unsent);
        let receipts = self.runtime.block_on(patiently(&*self.store, &adds));
        let receipts =
            receipts.with_context(|| format!("the store failed; {}", self.known()))?;
        for receipt in receipts {
            self.count(receipt);
        }
        Ok(())
    }

    fn count(&mut self, receipt: Receipt) {
        let now = self.when == When::Now;
        match receipt.added {
            Added::Duplicate => self.added.present += 1,
            // Only a dead key that was to be ready now is told to wait.
            Added::Delayed if now => self.added.revived += 1,
            Added::Delayed => self.added.delayed += 1,
            Added::Ready | Added::Dirty | _ => self.added.new += 1,
        }
    }

    /// What is certain when something has failed.
    fn known(&self) -> String {
        let known = count(self.added.total(), "key was", "keys were");
        format!("{known} acknowledged")
    }
}

/// Adds keys; an add that is repeated costs one more run at worst.
async fn patiently(store: &dyn Store, adds: &[Add]) -> Result<Vec<Receipt>, Error> {
    let give_up = SystemClock.now() + PATIENCE;
    loop {
        match store.add(adds).await {
            Err(error) if error.is_transient() && SystemClock.now() < give_up => {}
            answer => return answer,
        }
        SystemClock.timer(SystemClock.now() + PAUSE).await;
    }
}
