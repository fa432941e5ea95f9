//! A validated command line: values checked, program found, files opened.

mod store;

pub(crate) use self::store::{StorePlan, shared_rate};

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::net::TcpListener;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use regex::bytes::Regex;

use crate::command::Template;
use crate::flags::{
    ExecutionFlags, InputFlags, JitterForm, OutputFlags, ProgressForm, RetryFlags,
    RunFlags, SchedulingFlags, Scope,
};
use crate::input::{Input, Mode, Source};
use crate::report::{Log, Resumed};
use crate::values::{Backoff, Codes, MaxFailures, MaxRetries, Rate};

/// Everything that `requeue run` needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) input: Input,
    pub(crate) template: Template,
    pub(crate) workers: usize,
    pub(crate) limits: TimeLimits,
    pub(crate) policy: Policy,
    pub(crate) output: Output,
    pub(crate) progress: Progress,
    pub(crate) log: Option<Log>,
    pub(crate) resumed: Option<Resumed>,
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) store: Option<StorePlan>,
    pub(crate) dry_run: bool,
}

/// The time limit of a run, and the time between TERM and KILL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) kill_after: Duration,
}

/// When commands start, and what happens when they fail.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) rate: Rate,
    pub(crate) burst: NonZeroU32,
    /// `rate` limits all workers on the store together.
    pub(crate) shared_rate: bool,
    pub(crate) retry_rate: Rate,
    pub(crate) retry_burst: NonZeroU32,
    pub(crate) backoff: Backoff,
    pub(crate) jitter: JitterForm,
    pub(crate) retry: RetryRule,
    pub(crate) debounce: Option<Duration>,
    pub(crate) order: Order,
    pub(crate) max_failures: Option<MaxFailures>,
    /// `--retry-rate` counts only the retries of this process, although there is a store.
    pub(crate) own_retry_rate: bool,
}

/// Which failures are retried.
#[derive(Debug)]
pub(crate) struct RetryRule {
    pub(crate) max: MaxRetries,
    pub(crate) only: Option<Codes>,
    pub(crate) never: Option<Codes>,
}

impl RetryRule {
    /// Returns whether to retry after exit code `code` and `failures` earlier failures.
    pub(crate) fn allows(&self, code: u8, failures: u32) -> bool {
        let left = match self.max {
            MaxRetries::Unlimited => true,
            MaxRetries::AtMost(max) => failures < max,
        };
        let wanted = self.only.as_ref().is_none_or(|codes| codes.contains(code));
        let unwanted = self.never.as_ref().is_some_and(|codes| codes.contains(code));
        left && wanted && !unwanted
    }
}

/// The order in which keys run.
#[derive(Debug)]
pub(crate) enum Order {
    Fifo,
    Priority,
    Fair(Grouping),
}

/// Finds the group of a key.
#[derive(Clone, Debug)]
pub(crate) enum Grouping {
    /// The part before the first such byte, or the whole key.
    Before(u8),
    /// The first capture, or else the whole match, or else the empty group.
    Pattern(Regex),
}

impl Grouping {
    pub(crate) fn of<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self {
            Self::Before(end) => key.split(|byte| byte == end).next().unwrap_or(key),
            Self::Pattern(regex) => regex.captures(key).map_or(b"", |found| {
                let part = found.iter().skip(1).flatten().next().or(found.get(0));
                part.map_or(b"", |part| part.as_bytes())
            }),
        }
    }
}

/// The destination of the output of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Printed when a run ends.
    Grouped { tag: bool, only: Shown },
    /// Printed line by line.
    Lines { tag: bool },
    /// Written to files in a directory.
    Files(PathBuf),
}

/// The runs whose output is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    Failed,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Bar,
    Line,
    None,
}

impl Plan {
    pub(crate) fn new(flags: RunFlags) -> Result<Self> {
        let (command, keys) = split_keys(flags.command.clone());
        if command.is_empty() {
            bail!("no command before ':::'; usage: requeue run -- COMMAND ::: KEY...");
        }
        let mode = store::mode(&flags, keys.is_some())?;
        let store = store::plan(&flags, mode)?;
        let input = input(&flags.input, keys, flags.scheduling.priority_field, mode)?;
        let resumed = flags.record.resume.as_deref();
        let dry_run = flags.execution.dry_run;
        let log = flags.record.log.as_deref();
        Ok(Self {
            workers: workers(&flags.execution),
            limits: TimeLimits {
                timeout: flags.execution.timeout,
                kill_after: flags.execution.kill_after,
            },
            template: Template::new(&command, flags.execution.shell)?,
            progress: progress(flags.output.progress, &input),
            input,
            policy: policy(&flags.scheduling, flags.retries)?,
            output: output(flags.output, dry_run)?,
            resumed: resumed.map(|path| read_resumed(path, log)).transpose()?,
            log: log.filter(|_| !dry_run).map(open_log).transpose()?,
            metrics: flags.record.metrics.map(listen).transpose()?,
            store,
            dry_run,
        })
    }
}

/// Splits the command from the keys after `:::`.
fn split_keys(mut command: Vec<OsString>) -> (Vec<OsString>, Option<Vec<OsString>>) {
    match command.iter().position(|word| word == ":::") {
        None => (command, None),
        Some(at) => {
            let keys = command.split_off(at + 1);
            command.truncate(at);
            (command, Some(keys))
        }
    }
}

fn workers(flags: &ExecutionFlags) -> usize {
    let fallback = || available_parallelism().map_or(1, NonZeroUsize::get);
    flags.workers.map_or_else(fallback, NonZeroUsize::get)
}

fn input(
    flags: &InputFlags,
    keys: Option<Vec<OsString>>,
    priority: Option<NonZeroUsize>,
    mode: Mode,
) -> Result<Input> {
    let mut sources = Vec::new();
    for path in &flags.arg_file {
        sources.push(Source::Stream(open_keys(path)?));
    }
    sources.extend(keys.map(Source::Words));
    let mut reads_standard_input = flags.arg_file.iter().any(|path| is_standard(path));
    if sources.is_empty() && mode == Mode::UntilEmpty {
        sources.push(standard_input());
        reads_standard_input = true;
    }
    Ok(Input {
        typed: reads_standard_input && io::stdin().is_terminal(),
        sources,
        mode,
        separator: separator(flags.null),
        priority: priority.map(NonZeroUsize::get),
        max_queued: flags.max_queued.map(NonZeroUsize::get),
    })
}

/// Returns the byte that ends a key.
pub(crate) fn separator(null: bool) -> u8 {
    if null { 0 } else { b'\n' }
}

/// Size of the input buffer, in bytes.
const READ_AHEAD: usize = 64 * 1024;

/// Returns the source of keys if no other is given.
pub(crate) fn standard_input() -> Source {
    Source::Stream(Box::new(BufReader::with_capacity(READ_AHEAD, io::stdin())))
}

/// Returns whether a path means standard input.
fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(crate) fn open_keys(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    if is_standard(path) {
        return Ok(Box::new(BufReader::with_capacity(READ_AHEAD, io::stdin())));
    }
    let unreadable = || format!("cannot read --arg-file {}", path.display());
    let file = File::open(path).with_context(unreadable)?;
    if file.metadata().with_context(unreadable)?.is_dir() {
        bail!("{}: it is a directory", unreadable());
    }
    Ok(Box::new(BufReader::with_capacity(READ_AHEAD, file)))
}

fn policy(flags: &SchedulingFlags, retries: RetryFlags) -> Result<Policy> {
    let order = match (flags.priority_field, flags.fair_by.as_deref()) {
        (None, Some(pattern)) => Order::Fair(grouping(pattern)?),
        (Some(_), _) => Order::Priority,
        (None, None) => Order::Fifo,
    };
    Ok(Policy {
        rate: flags.rate,
        burst: flags.burst,
        shared_rate: flags.rate_scope == Scope::Store,
        retry_rate: retries.retry_rate,
        retry_burst: retries.retry_burst,
        backoff: retries.backoff,
        jitter: retries.jitter,
        retry: RetryRule {
            max: retries.max_retries,
            only: retries.retry_on,
            never: retries.no_retry_on,
        },
        debounce: flags.debounce,
        order,
        max_failures: flags
            .max_failures
            .or(flags.fail_fast.then_some(MaxFailures::Keys(1))),
        own_retry_rate: retries.retry_rate_scope == Some(Scope::Process),
    })
}

const EXPECTED_GROUPING: &str = "expected a separator such as / or a regular expression \
                                 such as '^[^/]+' or 'tenant=(\\w+)'";

/// Parses a grouping: one character that is not alphanumeric is a separator, anything else a
/// regular expression.
fn grouping(pattern: &str) -> Result<Grouping> {
    match pattern.as_bytes() {
        [] => bail!("invalid value '' for '--fair-by <PATTERN>': {EXPECTED_GROUPING}"),
        [only] if !only.is_ascii_alphanumeric() => Ok(Grouping::Before(*only)),
        _ => Regex::new(pattern).map(Grouping::Pattern).map_err(|error| {
            // The last of several lines says what is wrong.
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default();
            anyhow!(
                "invalid value '{pattern}' for '--fair-by <PATTERN>': {EXPECTED_GROUPING}: \
                 {}",
                why.trim_start_matches("error: ")
            )
        }),
    }
}

fn output(flags: OutputFlags, dry_run: bool) -> Result<Output> {
    if let Some(dir) = flags.output {
        if !dry_run {
            fs::create_dir_all(&dir)
                .with_context(|| format!("cannot create --output {}", dir.display()))?;
        }
        return Ok(Output::Files(dir));
    }
    let tag = flags.tag;
    let only = if flags.quiet_success { Shown::Failed } else { Shown::All };
    let lines = flags.line_buffer;
    Ok(if lines { Output::Lines { tag } } else { Output::Grouped { tag, only } })
}

fn progress(form: ProgressForm, input: &Input) -> Progress {
    match form {
        ProgressForm::None => Progress::None,
        ProgressForm::Bar => Progress::Bar,
        ProgressForm::Auto if can_redraw() && !input.typed => Progress::Bar,
        ProgressForm::Auto | ProgressForm::Line => Progress::Line,
    }
}

/// Returns whether standard error is an interactive terminal that can move its cursor.
fn can_redraw() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !dumb && !set("CI")
}

/// Reads the log to resume from. It may be missing if this run also writes it.
fn read_resumed(path: &Path, log: Option<&Path>) -> Result<Resumed> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && log == Some(path) => {
            return Ok(Resumed::default());
        }
        Err(error) => return Err(error).with_context(|| unreadable(path)),
    };
    let mut file = BufReader::with_capacity(READ_AHEAD, file);
    let start = file.fill_buf().with_context(|| unreadable(path))?;
    if start.first().is_some_and(|byte| *byte != b'{') {
        bail!("--resume {} was not written by --log", path.display());
    }
    Resumed::read(file).with_context(|| unreadable(path))
}

fn unreadable(path: &Path) -> String {
    format!("cannot read --resume {}", path.display())
}

fn open_log(path: &Path) -> Result<Log> {
    Log::append(path).with_context(|| format!("cannot write --log {}", path.display()))
}

fn listen(address: std::net::SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .with_context(|| format!("cannot listen on --metrics {address}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values;

    #[test]
    fn keys_follow_three_colons() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(split_keys(words("echo {}")), (words("echo {}"), None));
        assert_eq!(
            split_keys(words("echo ::: a b")),
            (words("echo"), Some(words("a b")))
        );
    }

    #[test]
    fn exit_codes_decide_which_failures_are_retried() {
        let rule = RetryRule {
            max: MaxRetries::AtMost(2),
            only: Some(values::codes("1-10").unwrap()),
            never: Some(values::codes("5").unwrap()),
        };
        assert!(rule.allows(1, 0) && rule.allows(1, 1));
        assert!(!rule.allows(1, 2), "no retries left");
        assert!(!rule.allows(5, 0) && !rule.allows(11, 0));
    }

    #[test]
    fn group_is_a_prefix_or_a_match() {
        let of = |pattern: &str, key: &'static str| {
            let part = grouping(pattern).unwrap().of(key.as_bytes()).to_vec();
            String::from_utf8(part).unwrap()
        };
        assert_eq!(of("/", "red/1"), "red");
        assert_eq!(of("/", "alone"), "alone");
        assert_eq!(of("^[a-z]+", "red1"), "red");
        assert_eq!(of("t=(\\w+)", "x t=blue y"), "blue");
        assert_eq!(of("t=(\\w+)", "none"), "");
        assert!(grouping("(a").is_err() && grouping("").is_err());
    }
}
