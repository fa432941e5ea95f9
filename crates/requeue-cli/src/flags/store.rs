//! What was typed about a store, and the verbs that need one.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::values;

pub(super) const ADD: &str = "\
Add keys to the queue of a store.

Each word is a key; without one, keys are read from the standard input, as requeue run reads \
them. A key that is there already is not there twice; one that is being worked on is worked \
on once more, after; one that is dead has a new chance.";

pub(super) const STATUS: &str = "\
Tell how the queue of a store stands.

A key whose worker died counts as processing until its lease is over and somebody has looked \
for keys to work on. This only looks: after how many lost leases a key is dead is for workers to \
say (--max-deliveries). Workers that hold keys are listed with when they were last heard of.";

pub(super) const ADD_CODES: &str = "\
Exit codes:
  0  the store has acknowledged every key
  2  wrong usage, or the store failed: it is told how many keys it had acknowledged;
     or some line was left out and told of, and the others were added

A key has 1 to 1024 bytes, and a line that has more is left out; so is an empty word, and a line \
without the number that --priority asks for. A server that cannot be reached is tried again for \
10 seconds.";

/// Which queue is meant.
#[derive(Debug, Args)]
pub(crate) struct StoreFlags {
    /// The store: a folder, redis://HOST:PORT or postgres://HOST:PORT/DATABASE; see run
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "REQUEUE_STORE",
        hide_env_values = true,
        help_heading = "Store"
    )]
    pub(crate) store: OsString,
    #[command(flatten)]
    pub(crate) queue: QueueFlags,
}

/// Which queue of a store is meant.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueueFlags {
    #[arg(
        long,
        value_name = "NAME",
        help = "The name of the queue on a server [default: default] [env: REQUEUE_QUEUE]",
        requires = "store",
        help_heading = "Store"
    )]
    pub(crate) queue: Option<String>,
    /// In how many parts a queue on Redis is made, 1 to 1024 [default: 1]; one that is there has
    /// as many as it was made with, and another number is refused
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count::<NonZeroUsize>,
        requires = "store",
        help_heading = "Store"
    )]
    pub(crate) partitions: Option<NonZeroUsize>,
}

/// The store of a run, if there is one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct RunStoreFlags {
    /// Keep the queue in a store: in a folder, for one process at a time, or on a server, for
    /// many: redis://[USER:PASSWORD@]HOST[:PORT][/DB], redis-cluster://HOST:PORT,HOST:PORT
    /// (with TLS, rediss:// or rediss-cluster://) or
    /// postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE, whose password may also be in
    /// PGPASSWORD; in a password, write %40 for @ and %2F for /. Keys of the input are added to
    /// it, and the run ends when the whole queue is empty
    #[arg(long, value_name = "ADDRESS", env = "REQUEUE_STORE", hide_env_values = true)]
    pub(crate) store: Option<OsString>,
    #[command(flatten)]
    pub(crate) queue: QueueFlags,
    /// Read no input and work on the keys of the store until a signal comes; so it is without
    /// this if the standard input is a terminal and no keys are given
    #[arg(long, conflicts_with_all = ["arg_file", "max_queued"])]
    pub(crate) worker: bool,
    /// After a worker died, its keys wait this long before others have them. It is extended
    /// while a command runs; a command whose lease is lost is ended within a tenth of it
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = values::lease,
        default_value = "30s",
        requires = "store"
    )]
    pub(crate) lease: Duration,
    /// Take a key for dead once so many workers died with it; 0 tries for ever
    #[arg(
        long,
        value_name = "N",
        value_parser = values::amount::<u32>,
        default_value = "5",
        requires = "store"
    )]
    pub(crate) max_deliveries: u32,
    /// A dead key that is added again waits this long
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = values::duration,
        default_value = REVIVE,
        requires = "store"
    )]
    pub(crate) revive_after: Duration,
}

/// As long as the first retry of a key waits by default.
const REVIVE: &str = "200ms";

impl RunStoreFlags {
    pub(crate) fn max_deliveries(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.max_deliveries)
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Keys end with a NUL byte and not with a newline
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Read keys from FILE and not from the standard input; - is the standard input
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) arg_file: Vec<PathBuf>,
    /// Take the FIELD-th word of each line, a whole number from -128 to 127, as its priority,
    /// and the rest as the key; higher goes first
    #[arg(long, value_name = "FIELD", value_parser = values::count::<NonZeroUsize>)]
    pub(crate) priority: Option<NonZeroUsize>,
    /// Add the keys once this time has passed on the store's clock; the earliest time of
    /// several counts
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) after: Option<Duration>,
    /// A dead key that is added again waits this long
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = REVIVE)]
    pub(crate) revive_after: Duration,
    /// The keys
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Name at most this many failing keys
    #[arg(long, value_name = "N", value_parser = values::amount::<usize>, default_value = "20")]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct WatchFlags {
    #[command(flatten)]
    pub(crate) status: StatusFlags,
    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = values::interval, default_value = "1s")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadVerb {
    /// List dead keys, the longest dead first
    List(ListFlags),
    /// Make dead keys ready, as if they had never failed
    Revive(Chosen),
    /// Drop dead keys for good
    Drop(Chosen),
}

#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Print a JSON object for each key
    #[arg(long)]
    pub(crate) json: bool,
    /// List at most this many keys
    #[arg(long, value_name = "N", value_parser = values::amount::<usize>, default_value = "1000")]
    pub(crate) limit: usize,
}

/// Some dead keys, or all.
#[derive(Debug, Args)]
pub(crate) struct Chosen {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Every dead key
    #[arg(long, conflicts_with = "keys")]
    pub(crate) all: bool,
    /// The keys
    #[arg(value_name = "KEY", required_unless_present = "all")]
    pub(crate) keys: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// The keys
    #[arg(value_name = "KEY", required = true)]
    pub(crate) keys: Vec<OsString>,
}
