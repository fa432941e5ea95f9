//! A folder, and the command in it.
//!
//! Tests never sleep. They wait for lines, files and named pipes; whatever does not come
//! within a minute fails the test.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Far beyond what anything here takes on a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does something that may block, and fails if it blocks for too long.
pub(crate) fn patiently<T: Send + 'static>(
    what: &str,
    act: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(act()));
    receive.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} takes for ever"))
}

/// Tells its process and waits, unless it is the second of its kind.
pub(crate) const WAITS: &str =
    "[ -e second ] || { echo $$ > pid; cat go > /dev/null; }; echo {}";

/// Keys as the command reads them.
pub(crate) fn lines(keys: impl IntoIterator<Item = String>) -> String {
    keys.into_iter().flat_map(|key| [key, "\n".to_owned()]).collect()
}

/// The keys `0`, `1` and so on.
pub(crate) fn numbers(count: u32) -> String {
    lines((0..count).map(|key| key.to_string()))
}

/// A folder that goes away with its test.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("requeue-it-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// A pipe with a name, on which a command and its test can wait for each other.
    pub(crate) fn fifo(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.path(name)).status().unwrap();
        assert!(made.success());
    }

    /// Pipes by which a command tells its process, and is let go.
    pub(crate) fn pipes(&self) {
        self.fifo("pid");
        self.fifo("go");
    }

    /// Waits until somebody writes to a pipe: what they wrote.
    pub(crate) fn hear(&self, fifo: &str) -> String {
        let path = self.path(fifo);
        patiently("hearing from a pipe", move || fs::read_to_string(path).unwrap())
    }

    /// Waits until somebody reads from a pipe, and lets them go on.
    pub(crate) fn release(&self, fifo: &str) {
        let path = self.path(fifo);
        patiently("releasing a reader", move || {
            let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
            pipe.write_all(b"go\n").unwrap();
        });
    }

    /// The objects of a log.
    pub(crate) fn log(&self, name: &str) -> Vec<Value> {
        let file = BufReader::new(File::open(self.path(name)).unwrap());
        file.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }

    /// The events of one kind in a log.
    pub(crate) fn events(&self, name: &str, event: &str) -> Vec<Value> {
        self.log(name).into_iter().filter(|line| line["event"] == event).collect()
    }

    /// `requeue run` with these flags, up to the command and its arguments.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Cmd {
        self.requeue().arg("run").args(args)
    }

    /// It heeds signals that the tests themselves may have been told to ignore: one of them
    /// waited for ever under nohup.
    pub(crate) fn requeue(&self) -> Cmd {
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_requeue")]);
        command.current_dir(&self.0).env_remove("CI");
        command.env_remove("REQUEUE_STORE").env_remove("REQUEUE_QUEUE");
        Cmd { command, stdin: Vec::new() }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// The command before it is started.
pub(crate) struct Cmd {
    command: Command,
    stdin: Vec<u8>,
}

/// The command after it has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The lines of the standard output, sorted.
    pub(crate) fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

impl Cmd {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(
        mut self,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// What the command reads.
    pub(crate) fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = text.into();
        self
    }

    /// Runs it to its end.
    pub(crate) fn ran(self) -> Ran {
        let input = self.stdin.clone();
        let mut live = self.start();
        let mut stdin = live.stdin.take().unwrap();
        // It may end before it has read all: that is for the test to judge.
        thread::spawn(move || stdin.write_all(&input).unwrap_or_default());
        live.ended()
    }

    /// Starts it, to be talked to.
    pub(crate) fn start(mut self) -> Live {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let stdin = child.stdin.take();
        let out = lines_of(child.stdout.take().unwrap());
        let err = lines_of(child.stderr.take().unwrap());
        Live { child, stdin, out, err }
    }
}

/// The command while it runs.
pub(crate) struct Live {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Receiver<String>,
    err: Receiver<String>,
}

fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if send.send(text).is_err() {
                return;
            }
        }
    });
    receive
}

impl Live {
    /// Gives it a line to read.
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    /// Gives it a line to read: whether it still reads.
    pub(crate) fn try_say(&mut self, line: &str) -> bool {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").is_ok()
    }

    /// Gives it much to read.
    pub(crate) fn pour(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// The most memory that it has used so far, in bytes.
    pub(crate) fn most_memory(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Ends its input.
    pub(crate) fn end_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Stops reading its output.
    pub(crate) fn close_output(&mut self) {
        self.out = mpsc::channel().1;
    }

    /// The next line of its output, without its end.
    pub(crate) fn out_line(&mut self) -> String {
        self.out.recv_timeout(PATIENCE).expect("a line of output").trim_end().to_owned()
    }

    /// The next line of its errors that has `part` in it.
    pub(crate) fn err_line(&mut self, part: &str) -> String {
        loop {
            let line = self.err.recv_timeout(PATIENCE).expect("a line of errors");
            if line.contains(part) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Sends a signal, once it is able to heed one.
    pub(crate) fn signal(&self, name: &str) {
        while !self.heeds_signals() {
            thread::yield_now();
        }
        signal(name, &self.child.id().to_string());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to one that has shown that it is able to heed it.
    pub(crate) fn signal_now(&self, name: &str) {
        signal(name, &self.child.id().to_string());
    }

    /// Whether it catches USR1, the last of the signals that it learns to catch.
    fn heeds_signals(&self) -> bool {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
        caught.is_none_or(|mask| mask & (1 << (10 - 1)) != 0)
    }

    /// Asks for summaries until one has `part` in it.
    pub(crate) fn wait_for_status(&mut self, part: &str) {
        loop {
            self.signal("USR1");
            let status = self.err_line("requeue: ready");
            if status.contains(part) {
                return;
            }
            thread::yield_now();
        }
    }

    /// Waits for its end while its input is open.
    pub(crate) fn ended_with_open_input(mut self) -> Option<i32> {
        let stdin = self.stdin.take();
        let ran = self.ended();
        drop(stdin);
        ran.code
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ran {
        drop(self.stdin.take());
        let Self { mut child, out, err, .. } = self;
        let status: ExitStatus =
            patiently("the end of requeue", move || child.wait().unwrap());
        // Both end with the command, since it leaves no process behind.
        let all = |lines: Receiver<String>| lines.into_iter().collect();
        let out = patiently("the end of its output", move || all(out));
        let err = patiently("the end of its errors", move || all(err));
        Ran { code: status.code(), out, err }
    }
}

pub(crate) fn signal(name: &str, pid: &str) {
    let sent =
        Command::new("kill").args([&format!("-{name}"), "--", pid]).status().unwrap();
    assert!(sent.success(), "no signal {name} to {pid}");
}

/// Waits until a process is there no more. Who sends KILL to what is not its child is not
/// told when that has happened.
pub(crate) fn ends(pid: &str) {
    let pid = pid.to_owned();
    patiently("the end of a process", move || {
        while is_alive(&pid) {
            thread::yield_now();
        }
    });
}

/// Whether a process is there and not just waiting to be reaped.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}
