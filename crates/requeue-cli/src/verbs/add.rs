//! `requeue add`: adds keys from arguments or a stream.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::Added;
use requeue_store::{Add, Key, Receipt, RepliesExt, Store, When};
use tokio::runtime::Runtime;

use crate::USAGE;
use crate::address::StoreAddress;
use crate::flags::AddFlags;
use crate::input::{Record, Source, split_priority};
use crate::plan;
use crate::reader::BATCH;
use crate::report::{self, count};
use crate::retry::{for_a_while, retry};

/// Sends keys to a store in batches.
struct Adder {
    runtime: Runtime,
    store: Arc<dyn Store>,
    when: When,
    /// The number of the word that is the priority, counted from 1.
    priority_field: Option<usize>,
    /// The priority of keys without such a word.
    priority: i32,
    revive_after: Duration,
    unsent: Vec<Add>,
    added: AddCounts,
    rejected: u64,
}

/// The number of acknowledged adds by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AddCounts {
    added: u64,
    duplicate: u64,
    delayed: u64,
    revived: u64,
}

pub(crate) fn add(flags: AddFlags) -> Result<u8> {
    let separator = plan::separator(flags.null);
    let sources = sources(&flags)?;
    let address = StoreAddress::from_flags(flags.store)?;
    let runtime = super::runtime()?;
    let store = runtime.block_on(address.open_patiently(report::note))?;
    let mut adder = Adder {
        runtime,
        store,
        when: flags.after.map_or(When::Now, When::After),
        priority_field: flags.priority_field.map(NonZeroUsize::get),
        priority: flags.priority,
        revive_after: flags.revive_after,
        unsent: Vec::new(),
        added: AddCounts::default(),
        rejected: 0,
    };
    for source in sources {
        adder.read(source, separator)?;
    }
    report::note(&adder.added.summary());
    Ok(if adder.rejected > 0 { USAGE } else { 0 })
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
        // Keys read before an error are still added.
        self.send()?;
        let keys = self.acknowledged();
        let read =
            read.with_context(|| format!("cannot read the input after adding {keys}"));
        read.map(|_| ())
    }

    fn put(&mut self, line: &[u8]) -> Result<()> {
        match self.encode(line) {
            Ok(add) => self.unsent.push(add),
            Err(why) => {
                self.rejected += 1;
                report::note(&report::rejected_text(line, &why));
            }
        }
        if self.unsent.len() < BATCH { Ok(()) } else { self.send() }
    }

    /// Encodes the add of a line, or explains why it is rejected.
    fn encode(&self, line: &[u8]) -> Result<Add, String> {
        if line.is_empty() {
            // Usually an unset shell variable.
            return Err("the key is empty".to_owned());
        }
        let (priority, key) = match self.priority_field {
            Some(field) => split_priority(line, field).map_err(|why| why.to_string())?,
            None => (self.priority, line.to_vec()),
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
        let call = retry(|| self.store.add(&adds).all(), for_a_while());
        let receipts = self.runtime.block_on(call);
        let keys = self.acknowledged();
        let receipts =
            receipts.with_context(|| format!("store failed after adding {keys}"))?;
        for receipt in receipts {
            self.count(receipt);
        }
        Ok(())
    }

    fn count(&mut self, receipt: Receipt) {
        match receipt.added {
            Added::Duplicate => self.added.duplicate += 1,
            // Only a dead key is delayed by an add without a delay.
            Added::Delayed if self.when == When::Now => self.added.revived += 1,
            Added::Delayed => self.added.delayed += 1,
            Added::Ready | Added::Dirty | _ => self.added.added += 1,
        }
    }

    /// Formats the number of acknowledged keys.
    fn acknowledged(&self) -> String {
        count(self.added.total(), "key", "keys")
    }
}

impl AddCounts {
    fn total(self) -> u64 {
        self.added + self.duplicate + self.delayed + self.revived
    }

    /// Formats the result of all adds.
    fn summary(self) -> String {
        let parts = [
            (self.added, "added"),
            (self.duplicate, "already queued"),
            (self.delayed, "delayed"),
            (self.revived, "revived"),
        ];
        let parts = parts.iter().filter(|(number, _)| *number > 0);
        let parts: Vec<_> =
            parts.map(|(number, what)| format!("{number} {what}")).collect();
        let keys = count(self.total(), "key", "keys");
        if parts.is_empty() { keys } else { format!("{keys}: {}", parts.join(", ")) }
    }
}
