//! What was typed, and nothing more: no file is opened here and nothing is looked up.

mod store;

use std::ffi::{OsStr, OsString};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::values::{self, Backoff, Codes, MaxRetries, Rate};

pub(crate) use self::store::{
    AddFlags, Chosen, DeadVerb, ForgetFlags, ListFlags, QueueFlags, RunStoreFlags,
    StatusFlags, StoreFlags, WatchFlags,
};

const ABOUT: &str = "Run a command for each key of a stream";

const LONG_ABOUT: &str = "\
Run a command for each key of a stream.

A key that is queued already is not queued twice. A key never runs twice at a time. A key \
that comes again while it runs is run once more, after. Failures are retried, each key with \
a backoff of its own.

Each line of the standard input is a key, with the spaces in it; lines that are empty or only \
spaces are skipped. With -0, and behind :::, only what is empty is skipped.";

const EXAMPLES: &str = "\
Examples:
  Run once for each distinct line, several at a time:
    sort -R urls.txt | requeue run -- curl -sfO {}
  Build what changes, for ever; changes during a build are worth one more build:
    inotifywait -mr -e close_write --format %w%f src | requeue run --debounce 200ms -- make {}
  At most 10 starts a second, 3 retries, a record to resume from:
    requeue run --rate 10/s --max-retries 3 --log run.jsonl --resume run.jsonl -- ./sync {} < hosts
  Keys on the command line, a shell command:
    requeue run --shell 'ping -c1 {} >/dev/null && echo {} is up' ::: host-a host-b
  Names of any bytes:
    find . -name '*.png' -print0 | requeue run -0 -- optipng -quiet {}
  A queue that survives a crash; after one, the second line does what was left:
    requeue run --store ./queue.db -- ./sync {} < hosts
    requeue run --store ./queue.db -- ./sync {} < /dev/null
  A queue that many machines work on, with REQUEUE_STORE=redis://... or postgres://...:
    requeue add host-a host-b
    requeue run --worker -- ./sync {}

Exit codes:
  0    the last run of every key succeeded
  1    some key failed for good
  2    wrong usage, or something could not be set up;
       or no key failed, and some line was left out and told of
  126  the command cannot be executed
  127  the command was not found
  130  ended by Ctrl-C with work left (143 by TERM, 129 by HUP, 131 by QUIT)

Signals:
  The first Ctrl-C or TERM finishes what runs and starts nothing more. The second sends TERM \
  to what runs, the third, or --kill-after, sends KILL, and the fourth ends requeue at once, \
  whatever it waits for. QUIT sends KILL at once. USR1 prints a summary.

Environment of the command:
  REQUEUE_KEY      the key
  REQUEUE_ATTEMPT  1 in the first run of a key, 2 in its first retry
  REQUEUE_SLOT     from 1 to --workers, never the same for two at a time
  REQUEUE_TOKEN    on a store, a number that grows with each run of a key
  Its standard input is empty. A command that asks something on the terminal is stopped, as \
  any in the background is, and stays so until it is ended.

Log:
  Each line of --log has an event: added, merged (it was queued already), started, finished, \
  retried, gave_up, lost (its lease), died (in the store), and drained at the end. time and \
  next are seconds since 1970, code is what a shell would say. A key that is no text is in \
  key_hex besides.

On a store:
  Keys that were not run to their end stay in the store; a key that is given up goes to the \
  dead, see requeue dead. A key that this run added and that is dead at its end has failed \
  for good, whoever had it last: also one that never ran here, since its lease ran out too \
  often (--max-deliveries). Of more than 100,000 dead keys, only those that died longest ago are \
  looked through for that. A key has at most 1024 bytes there; a longer one is left out and told \
  of. A worker tries a server that cannot be reached again for 10 seconds. Whoever has seen a \
  greater REQUEUE_TOKEN of a key can refuse a smaller. If a \
  lease is lost while its command runs, the command is ended and the run does not count. The \
  second Ctrl-C also waits no longer for a store that is away.";

const USAGE: &str = "requeue run [OPTIONS] [--] COMMAND [ARGUMENT]... [::: KEY...]";

/// The verbs that have a manual page of their own.
const VERBS: [&str; 8] =
    ["run", "add", "status", "watch", "dead", "forget", "pause", "resume"];

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "requeue",
    version,
    about = ABOUT,
    long_about = LONG_ABOUT,
    max_term_width = 100
)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command for each key
    #[command(after_help = EXAMPLES, long_about = LONG_ABOUT, override_usage = USAGE)]
    Run(Box<RunFlags>),
    /// Add keys to the queue of a store
    #[command(long_about = store::ADD, after_help = store::ADD_CODES)]
    Add(AddFlags),
    /// Tell how the queue of a store stands
    #[command(long_about = store::STATUS)]
    Status(StatusFlags),
    /// Tell how the queue of a store stands, again and again
    Watch(WatchFlags),
    /// List keys that failed for good, give them a new chance, or drop them
    #[command(subcommand)]
    Dead(DeadVerb),
    /// Forget the failures of keys, so that their backoff begins anew
    Forget(ForgetFlags),
    /// Hand out no more keys, to no worker, until resumed; what runs goes on
    Pause(StoreFlags),
    /// Hand out keys again
    Resume(StoreFlags),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, of the command or of one verb
    Man {
        /// The verb
        #[arg(value_parser = VERBS)]
        verb: Option<String>,
    },
}

impl Verb {
    /// The address of the store, if one was given.
    pub(crate) fn address(&self) -> Option<&OsStr> {
        match self {
            Self::Run(flags) => flags.store.store.as_deref(),
            Self::Add(AddFlags { store, .. })
            | Self::Status(StatusFlags { store, .. })
            | Self::Watch(WatchFlags { status: StatusFlags { store, .. }, .. })
            | Self::Dead(
                DeadVerb::List(ListFlags { store, .. })
                | DeadVerb::Revive(Chosen { store, .. })
                | DeadVerb::Drop(Chosen { store, .. }),
            )
            | Self::Forget(ForgetFlags { store, .. })
            | Self::Pause(store)
            | Self::Resume(store) => Some(&store.store),
            Self::Completions { .. } | Self::Man { .. } => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) input: InputFlags,
    #[command(flatten)]
    pub(crate) execution: ExecutionFlags,
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    #[command(flatten)]
    pub(crate) record: RecordFlags,
    #[command(flatten)]
    pub(crate) store: RunStoreFlags,

    /// The command and its arguments; {} is replaced by the key, which is appended if there
    /// is no {}. Words after ::: are keys, and then the standard input is not read
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "COMMAND",
        help_heading = "Command"
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputFlags {
    /// Keys end with a NUL byte and not with a newline
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Read keys from FILE and not from the standard input; - is the standard input
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) arg_file: Vec<PathBuf>,
    /// Stop reading while this many keys wait
    #[arg(long, value_name = "N", value_parser = values::count::<NonZeroUsize>)]
    pub(crate) max_queued: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct ExecutionFlags {
    /// Run at most this many commands at a time [default: the number of processors]
    #[arg(
        short = 'j',
        short_alias = 'P',
        long,
        visible_alias = "jobs",
        value_name = "N",
        value_parser = values::count::<NonZeroUsize>
    )]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Give the command to sh, with each key quoted
    #[arg(long)]
    pub(crate) shell: bool,
    /// End a run that takes longer, with TERM; it counts as failed with code 124
    #[arg(long, value_name = "DURATION", value_parser = values::timeout)]
    pub(crate) timeout: Option<Duration>,
    /// After TERM, wait this long before KILL
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "10s")]
    pub(crate) kill_after: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyFlags {
    /// Start at most this many commands in a second, a minute or an hour: 10/s, 600/m, 5/h
    #[arg(long, value_name = "RATE", value_parser = values::rate, default_value = "unlimited")]
    pub(crate) rate: Rate,
    /// How many starts may come at once under --rate
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count::<NonZeroU32>,
        default_value = "1",
        requires = "rate"
    )]
    pub(crate) burst: NonZeroU32,
    /// Retry at most this often, all keys together
    #[arg(long, value_name = "RATE", value_parser = values::rate, default_value = "10/s")]
    pub(crate) retry_rate: Rate,
    /// How many retries may come at once under --retry-rate
    #[arg(long, value_name = "N", value_parser = values::count::<NonZeroU32>, default_value = "100")]
    pub(crate) retry_burst: NonZeroU32,
    /// Retry a failed key this often before it is given up; 0 for never, or unlimited
    #[arg(long, value_name = "N", value_parser = values::max_retries, default_value = "5")]
    pub(crate) max_retries: MaxRetries,
    /// Wait BASE before the first retry of a key, twice as long each time, up to MAX
    #[arg(long, value_name = "BASE..MAX", value_parser = values::backoff, default_value = "200ms..5m")]
    pub(crate) backoff: Backoff,
    /// Wait a random part of the backoff: all of it may vanish (full) or half (equal)
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "full",
        default_value = "none"
    )]
    pub(crate) jitter: JitterForm,
    /// Retry after these exit codes only: 75 or 1,100-110
    #[arg(long, value_name = "CODES", value_parser = values::codes)]
    pub(crate) retry_on: Option<Codes>,
    /// Never retry after these exit codes
    #[arg(long, value_name = "CODES", value_parser = values::codes)]
    pub(crate) no_retry_on: Option<Codes>,
    /// Run a key only once it has not come for this long
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) debounce: Option<Duration>,
    /// Take the FIELD-th word of each line, a whole number, as its priority, and the rest as
    /// the key; higher goes first. A store knows those from -128 to 127
    #[arg(
        long,
        value_name = "FIELD",
        value_parser = values::count::<NonZeroUsize>,
        conflicts_with_all = ["fair_by", "debounce"]
    )]
    pub(crate) priority: Option<NonZeroUsize>,
    /// Let groups of keys take turns: by the part before a separator such as /, or by a
    /// regular expression's first group
    #[arg(long, value_name = "PATTERN")]
    pub(crate) fair_by: Option<String>,
    /// Start nothing more once a key has failed for good
    #[arg(long)]
    pub(crate) fail_fast: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JitterForm {
    None,
    Full,
    Equal,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// Print lines as they come and not each run's output when it ends
    #[arg(long, conflicts_with_all = ["quiet_success", "output"])]
    pub(crate) line_buffer: bool,
    /// Begin each line of output with the key and a tab
    #[arg(long, conflicts_with = "output")]
    pub(crate) tag: bool,
    /// Print the output of failed runs only
    #[arg(long, conflicts_with = "output")]
    pub(crate) quiet_success: bool,
    /// Write the output of each key's last run to DIR/KEY.out and DIR/KEY.err
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// What to show of the progress
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub(crate) progress: ProgressForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// A bar on a terminal where no keys are typed, lines otherwise
    Auto,
    /// A status line and up to eight running keys
    Bar,
    /// A line every ten seconds, and a summary at the end
    Line,
    /// Nothing but what failed
    None,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Record")]
pub(crate) struct RecordFlags {
    /// Append what happens to FILE, a JSON object on each line
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Leave out keys whose last run succeeded according to FILE, a --log of before
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Serve metrics for Prometheus on ADDR: a port, or an address with a port
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Flags::command().debug_assert();
    }

    #[test]
    fn flags_after_the_command_are_its_own() {
        let flags = Flags::try_parse_from(["requeue", "run", "-0", "ls", "-0"]).unwrap();
        let Verb::Run(run) = flags.verb else { panic!("run was typed") };
        assert!(run.input.null);
        assert_eq!(run.command, ["ls", "-0"]);
    }
}
