//! Flags about stores, and the verbs that need one.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::values;

pub(super) const ADD_ABOUT: &str = "\
Add keys to a queue in a store, and create the queue if necessary.

Keys are the arguments, or else the lines of standard input, as in requeue run. A key that is \
already queued is not queued again. A key that is being processed runs once more afterwards. \
A dead key is revived.";

pub(super) const STATUS_ABOUT: &str = "\
Show the state of a queue: how many keys are ready, delayed, processing, failing and dead; the \
failing keys with their last error; and the workers that hold keys.

If a worker dies, its keys count as processing until their leases expire and another worker \
looks for keys. This command only reads; workers decide when a key is dead (--max-deliveries).";

pub(super) const MIGRATE_ABOUT: &str = "\
Bring the data of a store to the version of this program.

No other command changes the format of stored data. Each step is printed. With --dry-run, \
nothing is changed.

Exit codes: 0 if there was nothing to do or all steps were carried out; 1 if a dry run found \
something to do; 2 if it failed.";

pub(super) const ADD_NOTES: &str = "\
Exit codes:
  0  the store has acknowledged every key
  2  usage error; or the store failed, and the message says how many
     keys it had acknowledged; or input lines were rejected, and all
     others were added

Rejected lines:
  Keys longer than 1024 bytes, empty arguments, and lines without the
  number that --priority-field asks for.

If a server is unreachable, requeue add retries for 10 seconds.";

/// Names a queue in a store.
#[derive(Debug, Args)]
pub(crate) struct StoreFlags {
    /// The store: a directory, redis://HOST:PORT or postgres://HOST:PORT/DATABASE; for more
    /// forms see requeue run --help
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

/// Names a queue on a server.
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
    /// The number of partitions of a Redis queue, 1 to 1024 [default: 1]; it is fixed when the
    /// queue is created
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count::<NonZeroUsize>,
        requires = "store",
        help_heading = "Store"
    )]
    pub(crate) partitions: Option<NonZeroUsize>,
}

/// The optional store of `requeue run`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct RunStoreFlags {
    /// Keep the queue in a store: a directory, redis://... or postgres://...
    ///
    /// A directory is for one process at a time; a server is for many:
    ///
    ///   redis://[USER:PASSWORD@]HOST[:PORT][/DB]
    ///   redis-cluster://HOST:PORT,HOST:PORT
    ///   rediss://... and rediss-cluster://... for TLS
    ///   postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE
    ///
    /// In a password, write %40 for @ and %2F for /. The password of
    /// PostgreSQL can also be given in PGPASSWORD.
    ///
    /// Keys from the input are added to the queue. The run ends when the
    /// whole queue is empty.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "REQUEUE_STORE",
        hide_env_values = true,
        verbatim_doc_comment
    )]
    pub(crate) store: Option<OsString>,
    #[command(flatten)]
    pub(crate) queue: QueueFlags,
    /// Read no input; process keys from the store until a signal
    ///
    /// This is the default if standard input is a terminal and no keys are given.
    #[arg(long, conflicts_with_all = ["arg_file", "max_queued"])]
    pub(crate) worker: bool,
    /// How long a key stays leased after its worker dies; then another worker runs it
    ///
    /// The lease is extended while the command is running. If it is lost anyway, the command
    /// is terminated within a tenth of this time.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = values::lease,
        default_value = "30s",
        requires = "store"
    )]
    pub(crate) lease: Duration,
    /// Give up on a key after N workers died while processing it; 0 never gives up
    #[arg(
        long,
        value_name = "N",
        value_parser = values::amount::<u32>,
        default_value = "5",
        requires = "store"
    )]
    pub(crate) max_deliveries: u32,
    /// Delay a dead key by this long when it is added again
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = values::duration,
        default_value = REVIVE_AFTER,
        requires = "store"
    )]
    pub(crate) revive_after: Duration,
}

/// The delay before the first retry under the default `--backoff`.
const REVIVE_AFTER: &str = "200ms";

impl RunStoreFlags {
    pub(crate) fn max_deliveries(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.max_deliveries)
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Keys are separated by NUL bytes instead of newlines
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Read keys from FILE instead of standard input; - is standard input
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) arg_file: Vec<PathBuf>,
    /// The priority of the keys, from -128 to 127; higher runs first
    #[arg(
        long,
        value_name = "N",
        value_parser = values::priority,
        allow_negative_numbers = true,
        default_value = "0"
    )]
    pub(crate) priority: i32,
    /// Use word number FIELD of each line as its priority, and the rest as the key
    #[arg(
        long,
        value_name = "FIELD",
        value_parser = values::count::<NonZeroUsize>,
        conflicts_with = "priority"
    )]
    pub(crate) priority_field: Option<NonZeroUsize>,
    /// Delay the keys by this long; if a key is already delayed, the earlier time wins
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) after: Option<Duration>,
    /// Delay a dead key by this long when it is added again
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = REVIVE_AFTER)]
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
    /// List at most N failing keys
    #[arg(long, value_name = "N", value_parser = values::amount::<usize>, default_value = "20")]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct WatchFlags {
    #[command(flatten)]
    pub(crate) status: StatusFlags,
    /// Time between two updates
    #[arg(long, value_name = "DURATION", value_parser = values::interval, default_value = "1s")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadVerb {
    /// List dead keys, oldest first
    List(ListFlags),
    /// Make dead keys ready again and forget their failures
    Revive(ChosenKeys),
    /// Delete dead keys
    Drop(ChosenKeys),
}

#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Print one JSON object per key
    #[arg(long)]
    pub(crate) json: bool,
    /// List at most N keys
    #[arg(long, value_name = "N", value_parser = values::amount::<usize>, default_value = "1000")]
    pub(crate) limit: usize,
}

/// Some dead keys, or all.
#[derive(Debug, Args)]
pub(crate) struct ChosenKeys {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// All dead keys
    #[arg(long, conflicts_with = "keys")]
    pub(crate) all: bool,
    /// The keys
    #[arg(value_name = "KEY", required_unless_present = "all")]
    pub(crate) keys: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Print the steps and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// The keys
    #[arg(value_name = "KEY", required = true)]
    pub(crate) keys: Vec<OsString>,
}
