//! What was typed, made ready to run: checked, resolved, files opened.

mod store;

pub(crate) use self::store::StorePlan;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Read};
use std::net::TcpListener;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use regex::bytes::Regex;

use crate::command::Template;
use crate::flags::{
    ExecutionFlags, InputFlags, JitterForm, OutputFlags, PolicyFlags, ProgressForm,
    RunFlags,
};
use crate::input::{Input, Source, Work};
use crate::report::{Log, Resumed, resume};
use crate::values::{Backoff, Codes, MaxRetries, Rate};

/// Everything that a run needs to know.
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
}

/// How long a run may take, and how long it has to heed TERM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) kill_after: Duration,
}

#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) rate: Rate,
    pub(crate) burst: NonZeroU32,
    pub(crate) retry_rate: Rate,
    pub(crate) retry_burst: NonZeroU32,
    pub(crate) backoff: Backoff,
    pub(crate) jitter: JitterForm,
    pub(crate) retry: RetryRule,
    pub(crate) debounce: Option<Duration>,
    pub(crate) order: Order,
    pub(crate) fail_fast: bool,
}

/// Which failures are worth another try.
#[derive(Debug)]
pub(crate) struct RetryRule {
    pub(crate) max: MaxRetries,
    pub(crate) only: Option<Codes>,
    pub(crate) never: Option<Codes>,
}

impl RetryRule {
    /// Whether a key that ended with `code`, after `retries` others, is tried again.
    pub(crate) fn allows(&self, code: u8, retries: u32) -> bool {
        let left = match self.max {
            MaxRetries::Unlimited => true,
            MaxRetries::AtMost(max) => retries < max,
        };
        let wanted = self.only.as_ref().is_none_or(|codes| codes.contains(code));
        let unwanted = self.never.as_ref().is_some_and(|codes| codes.contains(code));
        left && wanted && !unwanted
    }
}

/// In which order keys run.
#[derive(Debug)]
pub(crate) enum Order {
    Fifo,
    Priority,
    Fair(Grouping),
}

/// Which part of a key names its group.
#[derive(Clone, Debug)]
pub(crate) enum Grouping {
    /// All before the first of these; the whole key if it has none.
    Before(u8),
    /// The first group that takes part in a match, or the match; nothing if none.
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

/// Where the output of commands goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Printed when the run ends.
    Grouped { tag: bool, only: Shown },
    /// Printed line by line.
    Lines { tag: bool },
    /// To files in a folder.
    Files(PathBuf),
}

/// Of which runs the output is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    Failed,
}

/// What is shown of the progress.
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
            bail!("no command before ':::': expected requeue run -- COMMAND ::: KEY...");
        }
        let work = store::work(&flags, keys.is_some())?;
        let store = store::store(&flags, work)?;
        let input = input(&flags.input, keys, flags.policy.priority, work)?;
        let resumed = flags.record.resume.as_deref();
        Ok(Self {
            workers: workers(&flags.execution),
            limits: TimeLimits {
                timeout: flags.execution.timeout,
                kill_after: flags.execution.kill_after,
            },
            template: Template::new(&command, flags.execution.shell)?,
            progress: progress(flags.output.progress, &input),
            input,
            policy: policy(flags.policy)?,
            output: output(flags.output)?,
            resumed: resumed
                .map(|path| read_resumed(path, flags.record.log.as_deref()))
                .transpose()?,
            log: flags.record.log.as_deref().map(open_log).transpose()?,
            metrics: flags.record.metrics.map(listen).transpose()?,
            store,
        })
    }
}

/// The command, and the keys behind `:::` if there is one.
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
    work: Work,
) -> Result<Input> {
    let mut sources = Vec::new();
    for path in &flags.arg_file {
        sources.push(Source::Stream(open_keys(path)?));
    }
    sources.extend(keys.map(Source::Words));
    let mut reads_standard_input = flags.arg_file.iter().any(|path| is_standard(path));
    if sources.is_empty() && work == Work::OnInput {
        sources.push(standard_input());
        reads_standard_input = true;
    }
    Ok(Input {
        typed: reads_standard_input && io::stdin().is_terminal(),
        sources,
        work,
        separator: separator(flags.null),
        priority: priority.map(NonZeroUsize::get),
        max_queued: flags.max_queued.map(NonZeroUsize::get),
    })
}

/// What ends a key.
pub(crate) fn separator(null: bool) -> u8 {
    if null { 0 } else { b'\n' }
}

/// Bytes of input that are read at a time.
const READ_AHEAD: usize = 64 * 1024;

/// Where keys are read from if there are no others.
pub(crate) fn standard_input() -> Source {
    Source::Stream(Box::new(BufReader::with_capacity(READ_AHEAD, io::stdin())))
}

/// Whether a path stands for the standard input.
fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(crate) fn open_keys(path: &Path) -> Result<Box<dyn io::BufRead + Send>> {
    if is_standard(path) {
        return Ok(Box::new(BufReader::with_capacity(READ_AHEAD, io::stdin())));
    }
    let unreadable = || format!("cannot read the keys of --arg-file {}", path.display());
    let file = File::open(path).with_context(unreadable)?;
    if file.metadata().with_context(unreadable)?.is_dir() {
        bail!("{}: it is a folder", unreadable());
    }
    Ok(Box::new(BufReader::with_capacity(READ_AHEAD, file)))
}

fn policy(flags: PolicyFlags) -> Result<Policy> {
    let order = match (flags.priority, flags.fair_by.as_deref()) {
        (None, Some(pattern)) => Order::Fair(grouping(pattern)?),
        (Some(_), _) => Order::Priority,
        (None, None) => Order::Fifo,
    };
    Ok(Policy {
        rate: flags.rate,
        burst: flags.burst,
        retry_rate: flags.retry_rate,
        retry_burst: flags.retry_burst,
        backoff: flags.backoff,
        jitter: flags.jitter,
        retry: RetryRule {
            max: flags.max_retries,
            only: flags.retry_on,
            never: flags.no_retry_on,
        },
        debounce: flags.debounce,
        order,
        fail_fast: flags.fail_fast,
    })
}

/// A separator if it is one character that is no letter or digit, or else a regular
/// expression.
fn grouping(pattern: &str) -> Result<Grouping> {
    match pattern.as_bytes() {
        [] => bail!(
            "invalid value '' for '--fair-by <PATTERN>': expected a separator such as / \
             or a regular expression such as '^[^/]+' or 'tenant=(\\w+)'"
        ),
        [only] if !only.is_ascii_alphanumeric() => Ok(Grouping::Before(*only)),
        _ => Regex::new(pattern).map(Grouping::Pattern).with_context(|| {
            format!(
                "invalid value '{pattern}' for '--fair-by <PATTERN>': expected a separator \
                 such as / or a regular expression such as '^[^/]+' or 'tenant=(\\w+)'"
            )
        }),
    }
}

fn output(flags: OutputFlags) -> Result<Output> {
    if let Some(folder) = flags.output {
        fs::create_dir_all(&folder).with_context(|| {
            format!("cannot make the folder of --output {}", folder.display())
        })?;
        return Ok(Output::Files(folder));
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

/// Whether the standard error is a terminal that can move its cursor, with a person in
/// front of it.
fn can_redraw() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !dumb && !set("CI")
}

/// A log that is to be made by this very run need not be there yet.
fn read_resumed(path: &Path, log: Option<&Path>) -> Result<Resumed> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(mut file) => {
            file.read_to_end(&mut text).with_context(|| unreadable(path))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && log == Some(path) => {}
        Err(error) => return Err(error).with_context(|| unreadable(path)),
    }
    if text.first().is_some_and(|byte| *byte != b'{') {
        bail!("--resume {} is no log that --log has written", path.display());
    }
    Ok(resume(&text))
}

fn unreadable(path: &Path) -> String {
    format!("cannot read the log of --resume {}", path.display())
}

fn open_log(path: &Path) -> Result<Log> {
    Log::append(path)
        .with_context(|| format!("cannot write the log of --log {}", path.display()))
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
    fn keys_stand_behind_three_colons() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(split_keys(words("echo {}")), (words("echo {}"), None));
        assert_eq!(
            split_keys(words("echo ::: a b")),
            (words("echo"), Some(words("a b")))
        );
    }

    #[test]
    fn codes_decide_which_failures_are_worth_a_try() {
        let rule = RetryRule {
            max: MaxRetries::AtMost(2),
            only: Some(values::codes("1-10").unwrap()),
            never: Some(values::codes("5").unwrap()),
        };
        assert!(rule.allows(1, 0) && rule.allows(1, 1));
        assert!(!rule.allows(1, 2), "both retries are used up");
        assert!(!rule.allows(5, 0) && !rule.allows(11, 0));
    }

    #[test]
    fn a_group_is_a_prefix_or_a_part_that_matches() {
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
