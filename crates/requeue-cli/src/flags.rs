//! The command line: flags, verbs and their help. Opens no file and looks nothing up.

mod store;

use std::ffi::{OsStr, OsString};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::values::{self, Backoff, Codes, MaxFailures, MaxRetries, Rate};

pub(crate) use self::store::{
    AddFlags, ChosenKeys, DeadVerb, ForgetFlags, ListFlags, MigrateFlags, QueueFlags,
    RunStoreFlags, StatusFlags, StoreFlags, WatchFlags,
};

const ABOUT: &str = "Run a command for each key: a deduplicating, retrying xargs";

const LONG_ABOUT: &str = "\
Run a command for each key: a deduplicating, retrying xargs.

Keys come from standard input, files or arguments. A key that is already queued is not queued \
again, a key never runs twice at the same time, and a key that arrives while its command is \
running runs once more afterwards. Failed keys are retried, each with its own backoff.

With --store, the queue is kept on disk, in Redis or in PostgreSQL. It survives a crash, and \
several machines can work on it.";

const RUN_ABOUT: &str = "\
Run a command for each key.

Every line of standard input is a key, spaces included; blank lines are skipped. With -0 and \
after ::: only empty keys are skipped.

A key that is already queued is not queued again. A key never runs twice at the same time. A \
key that arrives while its command is running runs once more afterwards. A failed key is \
retried with its own backoff. At the end of the input, requeue runs the remaining keys, \
retries included, and exits.";

const RUN_HINT: &str = "\
Example:
  sort -R urls.txt | requeue run -j8 --rate 10/s -- curl -sfO {}

More examples, exit codes, signals and the log format: requeue run --help";

// Lines are at most 71 columns wide: man shows them indented by 7 on a terminal of 80, and
// wraps longer ones badly.
const RUN_NOTES: &str = "\
Examples:
  Run once for each distinct line, several at a time:
    sort -R urls.txt | requeue run -- curl -sfO {}
  Build whatever changes; changes during a build cause one more build:
    inotifywait -mr -e close_write --format %w%f src |
      requeue run --debounce 200ms -- make {}
  At most 10 starts per second, 3 retries, and a log to resume from:
    requeue run --rate 10/s --max-retries 3 --log run.jsonl \\
      --resume run.jsonl -- ./sync {} < hosts
  Keys on the command line, and a shell command:
    requeue run --shell 'ping -c1 {} >/dev/null && echo {} up' ::: a b
  File names with any bytes:
    find . -name '*.png' -print0 | requeue run -0 -- optipng -quiet {}
  A queue that survives a crash; the second line runs the rest:
    requeue run --store ./queue.db -- ./sync {} < hosts
    requeue run --store ./queue.db -- ./sync {} < /dev/null
  A queue for many machines, with its address in REQUEUE_STORE:
    requeue add host-a host-b
    requeue run --worker -- ./sync {}

Exit codes:
  0    the last run of every key succeeded
  1    a key failed for good
  2    usage error, or set-up failed; also if input lines were rejected
       and no key failed
  126  the command cannot be executed
  127  the command was not found
  130  stopped by Ctrl-C with work left
       (143 by TERM, 129 by HUP, 131 by QUIT); a worker that TERM stops
       exits with 0 after its running commands have finished
  141  the output was closed with work left

Signals:
  The first Ctrl-C or TERM starts no more commands and waits for the
  running ones. The second sends them TERM. The third, or --kill-after,
  sends KILL. The fourth exits at once. QUIT sends KILL at once. USR1
  prints a summary. Ctrl-Z stops requeue and its commands; fg continues
  both. If requeue is killed, a small helper process ends its commands.

Placeholders:
  {}    the key
  {.}   the key without its extension
  {/}   the part after the last slash
  {//}  the part before the last slash, or .
  {#}   the number of the run, counted from 1

Input:
  A line is at most 131,072 bytes long, as the kernel accepts no longer
  argument. A longer line ends the run with exit code 2.

Environment of the command:
  REQUEUE_KEY      the key
  REQUEUE_ATTEMPT  1 for the first run of a key, 2 for its first retry
  REQUEUE_SLOT     1 to --workers; different for all running commands
  REQUEUE_PID      the process id of requeue
  REQUEUE_TOKEN    with --store: grows with each run of a key
  An address of a store that contains a password is removed from the
  environment, and so is PGPASSWORD if the store is PostgreSQL.
  Standard input is empty. A command that reads from the terminal is
  stopped, like any background job, until it is terminated.

Log:
  Each line of --log is a JSON object with an event: added, merged (the
  key was already queued), started, finished, retried, gave_up, lost
  (the lease), died (in the store), and drained at the end. time and
  next are seconds since 1970, code is the exit code as a shell reports
  it. A key that is not UTF-8 is also given in key_hex.

Rates:
  --rate limits the starts of this process, or with --rate-scope=store
  those of all workers on the queue. --retry-rate limits the retries of
  all workers on the queue, or with --retry-rate-scope=process those of
  this process. All workers should use the same rate.

Stores:
  On a store, a key runs on one worker at a time as long as that worker
  extends its lease. A worker that is stopped, or cut off from the
  store, for longer than --lease loses the key; its command is ended as
  soon as it notices. After Ctrl-Z the same happens to all its keys.

  Unfinished keys stay in the store. A key that failed for good becomes
  dead; see requeue dead. At the end, keys that this process added and
  that are dead count as failed, even if another worker ran them or
  their lease expired too often (--max-deliveries). Only the 100,000
  oldest dead keys are checked.

  Keys are at most 1024 bytes long; longer ones are rejected.

  At start-up, --worker waits up to 10 seconds for a server. If a
  server becomes unreachable later, running commands continue and
  requeue retries; the second Ctrl-C stops waiting for it.

  If a lease expires while its command is running, the command is
  terminated and the run does not count. To be safe against a late
  command, remember the greatest REQUEUE_TOKEN of each key and refuse
  smaller ones.";

const USAGE: &str = "requeue run [OPTIONS] [--] COMMAND [ARGUMENT]... [::: KEY...]";

/// The verbs that have a manual page.
const VERBS: [&str; 9] =
    ["run", "add", "status", "watch", "dead", "forget", "pause", "resume", "migrate"];

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
    #[command(
        long_about = RUN_ABOUT,
        after_help = RUN_HINT,
        after_long_help = RUN_NOTES,
        override_usage = USAGE
    )]
    Run(Box<RunFlags>),
    /// Add keys to a queue in a store
    #[command(long_about = store::ADD_ABOUT, after_help = store::ADD_NOTES)]
    Add(AddFlags),
    /// Show the state of a queue
    #[command(long_about = store::STATUS_ABOUT)]
    Status(StatusFlags),
    /// Show the state of a queue repeatedly, until Ctrl-C
    Watch(WatchFlags),
    /// List, revive or drop dead keys, which failed for good
    #[command(subcommand)]
    Dead(DeadVerb),
    /// Forget the failures of keys, which resets their backoff
    Forget(ForgetFlags),
    /// Stop starting keys on all workers; running commands finish
    Pause(StoreFlags),
    /// Start keys again after a pause
    Resume(StoreFlags),
    /// Bring the data of a store to the version of this program
    #[command(long_about = store::MIGRATE_ABOUT)]
    Migrate(MigrateFlags),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    Man {
        /// The verb to describe [default: an overview of all verbs]
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
                | DeadVerb::Revive(ChosenKeys { store, .. })
                | DeadVerb::Drop(ChosenKeys { store, .. }),
            )
            | Self::Forget(ForgetFlags { store, .. })
            | Self::Migrate(MigrateFlags { store, .. })
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
    pub(crate) scheduling: SchedulingFlags,
    #[command(flatten)]
    pub(crate) retries: RetryFlags,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    #[command(flatten)]
    pub(crate) record: RecordFlags,
    #[command(flatten)]
    pub(crate) store: RunStoreFlags,

    /// The command and its arguments; {} becomes the key
    ///
    /// Without any placeholder, the key is appended. Words after ::: are keys; standard input is then
    /// not read.
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
    /// Keys are separated by NUL bytes instead of newlines
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Read keys from FILE instead of standard input; - is standard input
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) arg_file: Vec<PathBuf>,
    /// Pause reading while N keys are queued
    #[arg(long, value_name = "N", value_parser = values::count::<NonZeroUsize>)]
    pub(crate) max_queued: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct ExecutionFlags {
    /// Run up to N commands at the same time [default: the number of processors]
    #[arg(
        short = 'j',
        short_alias = 'P',
        long,
        visible_alias = "jobs",
        value_name = "N",
        value_parser = values::count::<NonZeroUsize>,
        allow_negative_numbers = true
    )]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Run through sh; {} becomes the key as one word, inside and outside of quotes
    ///
    /// A key never becomes code: the script gets it as a variable. Programs that run their
    /// arguments as code, such as eval, sh -c and ssh, are an exception: let them read the
    /// variable `REQUEUE_KEY` themselves.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Print the commands instead of running them; the store is not opened
    #[arg(long, conflicts_with = "worker")]
    pub(crate) dry_run: bool,
    /// Send TERM to a command that runs longer than this; it fails with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = values::timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Send KILL to a command that is still running this long after TERM
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "10s")]
    pub(crate) kill_after: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct SchedulingFlags {
    /// Limit the rate at which commands start: 10/s, 600/m, 5/h
    #[arg(long, value_name = "RATE", value_parser = values::rate, default_value = "unlimited")]
    pub(crate) rate: Rate,
    /// Whose starts count for --rate: of this process, or of all workers on the store
    ///
    /// With store, each idle worker may hold one start in reserve.
    #[arg(long, value_name = "SCOPE", default_value = "process", requires = "rate")]
    pub(crate) rate_scope: Scope,
    /// Allow bursts of N starts under --rate
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count::<NonZeroU32>,
        default_value = "1",
        requires = "rate"
    )]
    pub(crate) burst: NonZeroU32,
    /// Wait until a key has been quiet for this long before running it
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) debounce: Option<Duration>,
    /// Use word number FIELD of each line as a priority; higher runs first
    ///
    /// The priority is a whole number, in a store from -128 to 127. The rest of the line is
    /// the key.
    #[arg(
        long,
        value_name = "FIELD",
        value_parser = values::count::<NonZeroUsize>,
        conflicts_with_all = ["fair_by", "debounce"]
    )]
    pub(crate) priority_field: Option<NonZeroUsize>,
    /// Let groups of keys take turns
    ///
    /// PATTERN is a separator such as /, which ends the name of the group, or a regular
    /// expression whose first capture is the name.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) fair_by: Option<String>,
    /// Start no more commands after a key failed for good
    #[arg(long, conflicts_with = "max_failures")]
    pub(crate) fail_fast: bool,
    /// Start no more commands after N keys failed for good, or N% of at least 10 keys
    #[arg(long, value_name = "N", value_parser = values::max_failures)]
    pub(crate) max_failures: Option<MaxFailures>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Retries")]
pub(crate) struct RetryFlags {
    /// Retry a failed key up to N times; 0 for never, or unlimited
    #[arg(long, value_name = "N", value_parser = values::max_retries, default_value = "5")]
    pub(crate) max_retries: MaxRetries,
    /// Wait BASE before the first retry of a key, then twice as long each time, up to MAX
    #[arg(long, value_name = "BASE..MAX", value_parser = values::backoff, default_value = "200ms..5m")]
    pub(crate) backoff: Backoff,
    /// Randomize the backoff: from zero to all of it (full), or from half to all of it (equal)
    #[arg(long, value_name = "FORM", default_value = "none")]
    pub(crate) jitter: JitterForm,
    /// Retry only after these exit codes: 75 or 1,100-110
    #[arg(long, value_name = "CODES", value_parser = values::codes)]
    pub(crate) retry_on: Option<Codes>,
    /// Never retry after these exit codes
    #[arg(long, value_name = "CODES", value_parser = values::codes)]
    pub(crate) no_retry_on: Option<Codes>,
    /// Limit the rate of retries, all keys together: 10/s, 600/m, 5/h
    ///
    /// Without a limit, each key only waits for its own backoff. The status line shows when
    /// this limit is what retries wait for.
    #[arg(long, value_name = "RATE", value_parser = values::rate, default_value = "unlimited")]
    pub(crate) retry_rate: Rate,
    /// Whose retries count for --retry-rate: of all workers on the store, or of this process
    /// [default: store with --store]
    #[arg(long, value_name = "SCOPE")]
    pub(crate) retry_rate_scope: Option<Scope>,
    /// Allow bursts of N retries under --retry-rate
    #[arg(long, value_name = "N", value_parser = values::count::<NonZeroU32>, default_value = "100")]
    pub(crate) retry_burst: NonZeroU32,
}

/// The processes that a rate limit applies to together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// This process
    Process,
    /// All workers on the queue
    Store,
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
    /// Print output line by line instead of all at once when a run ends
    #[arg(long, conflicts_with_all = ["quiet_success", "output"])]
    pub(crate) line_buffer: bool,
    /// Start each line of output with the key and a tab
    #[arg(long, conflicts_with = "output")]
    pub(crate) tag: bool,
    /// Print only the output of failed runs
    #[arg(long, conflicts_with = "output")]
    pub(crate) quiet_success: bool,
    /// Write the output of each key's last run to DIR/KEY.out and DIR/KEY.err
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// How to show progress
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub(crate) progress: ProgressForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// bar on a terminal, unless keys are typed there; otherwise line
    Auto,
    /// A status line and up to eight running keys
    Bar,
    /// A line every ten seconds, and a summary at the end
    Line,
    /// Failures only
    None,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Log and metrics")]
pub(crate) struct RecordFlags {
    /// Append events to FILE as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Skip keys that already succeeded according to an earlier --log FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Serve Prometheus metrics on ADDR: a port, or an address and a port
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flag_definitions_are_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn notes_fit_into_a_manual_page() {
        for line in [RUN_NOTES, store::ADD_NOTES].iter().flat_map(|it| it.lines()) {
            assert!(line.chars().count() <= 71, "{line}");
        }
    }

    #[test]
    fn flags_after_the_command_belong_to_the_command() {
        let flags = Flags::try_parse_from(["requeue", "run", "-0", "ls", "-0"]).unwrap();
        let Verb::Run(run) = flags.verb else { panic!("run was typed") };
        assert!(run.input.null);
        assert_eq!(run.command, ["ls", "-0"]);
    }
}
