//! A temporary directory, and the command running in it.
//!
//! Tests never sleep. They wait for lines, files and named pipes, and fail after a minute.

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

/// Far longer than anything takes here, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `act` on a thread. Fails if it blocks for too long.
pub(crate) fn with_timeout<T: Send + 'static>(
    what: &str,
    act: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(act()));
    receive.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// Writes its pid to the pipe `pid` and waits for the pipe `go`, unless a file `second` exists.
pub(crate) const WAITS: &str =
    "[ -e second ] || { echo $$ > pid; cat go > /dev/null; }; echo {}";

/// Joins keys to input lines.
pub(crate) fn lines(keys: impl IntoIterator<Item = String>) -> String {
    keys.into_iter().flat_map(|key| [key, "\n".to_owned()]).collect()
}

/// Returns the keys `0`, `1` and so on as input lines.
pub(crate) fn numbers(count: u32) -> String {
    lines((0..count).map(|key| key.to_string()))
}

/// A temporary directory that is removed at the end of a test.
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

    /// Creates a named pipe, on which a command and its test can wait for each other.
    pub(crate) fn fifo(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.path(name)).status().unwrap();
        assert!(made.success());
    }

    /// Creates the pipes `pid` and `go`, see [`WAITS`].
    pub(crate) fn pipes(&self) {
        self.fifo("pid");
        self.fifo("go");
    }

    /// Waits for text on a pipe.
    pub(crate) fn receive(&self, fifo: &str) -> String {
        let path = self.path(fifo);
        with_timeout("receiving from a pipe", move || fs::read_to_string(path).unwrap())
    }

    /// Waits for the reader of a pipe, and lets it continue.
    pub(crate) fn release(&self, fifo: &str) {
        let path = self.path(fifo);
        with_timeout("releasing a reader", move || {
            let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
            pipe.write_all(b"go\n").unwrap();
        });
    }

    /// Returns the lines of a log.
    pub(crate) fn log(&self, name: &str) -> Vec<Value> {
        let file = BufReader::new(File::open(self.path(name)).unwrap());
        file.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }

    /// Returns the lines of a log with one kind of event.
    pub(crate) fn events(&self, name: &str, event: &str) -> Vec<Value> {
        self.log(name).into_iter().filter(|line| line["event"] == event).collect()
    }

    /// Prepares `requeue run` with these arguments.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Cmd {
        self.requeue().arg("run").args(args)
    }

    /// Prepares a shell command line.
    pub(crate) fn shell(&self, line: &str) -> Cmd {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.0).env_remove("CI");
        command.env_remove("REQUEUE_STORE").env_remove("REQUEUE_QUEUE");
        Cmd { command, stdin: Vec::new() }
    }

    /// Prepares `requeue` with the default signal handlers. Under nohup, a test once waited
    /// forever for an ignored HUP.
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

/// A command that is not started yet.
pub(crate) struct Cmd {
    command: Command,
    stdin: Vec<u8>,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Returns the sorted lines of standard output.
    pub(crate) fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }

    /// Returns standard error without the notes about the store.
    pub(crate) fn said(&self) -> String {
        let about_store = ["(REQUEUE_STORE)", "created the new queue"];
        let lines = self.err.split_inclusive('\n');
        lines.filter(|line| !about_store.iter().any(|part| line.contains(part))).collect()
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

    /// Sets the standard input.
    pub(crate) fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = text.into();
        self
    }

    /// Runs the command to its end.
    pub(crate) fn ran(self) -> Ran {
        let input = self.stdin.clone();
        let mut live = self.start();
        let mut stdin = live.stdin.take().unwrap();
        // The command may exit before it has read everything.
        thread::spawn(move || stdin.write_all(&input).unwrap_or_default());
        live.wait()
    }

    /// Starts the command.
    pub(crate) fn start(mut self) -> Live {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let stdin = child.stdin.take();
        let out = lines_of(child.stdout.take().unwrap());
        let err = lines_of(child.stderr.take().unwrap());
        Live { child, stdin, out, err }
    }
}

/// A running command.
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
    /// Writes a line to its input.
    pub(crate) fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    /// Writes a line to its input. Returns whether its input is still open.
    pub(crate) fn try_send(&mut self, line: &str) -> bool {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").is_ok()
    }

    /// Writes text to its input.
    pub(crate) fn send_text(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Returns the peak memory of the process, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Closes its input.
    pub(crate) fn end_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Stops reading its output.
    pub(crate) fn close_output(&mut self) {
        self.out = mpsc::channel().1;
    }

    /// Waits for the next line of standard output.
    pub(crate) fn out_line(&mut self) -> String {
        self.out.recv_timeout(TIMEOUT).expect("a line of output").trim_end().to_owned()
    }

    /// Waits for a line of standard error that contains `part`.
    pub(crate) fn err_line(&mut self, part: &str) -> String {
        loop {
            let line = self.err.recv_timeout(TIMEOUT).expect("a line of errors");
            if line.contains(part) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Waits until the signal handlers are installed, then sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        while !self.handles_signals() {
            thread::yield_now();
        }
        signal(name, &self.child.id().to_string());
    }

    /// Sends KILL to requeue and to its guard, so that its commands keep running.
    pub(crate) fn kill_with_guard(&self) {
        self.signal_now("STOP");
        let guard = loop {
            if let Some(guard) = guard_of(self.child.id()) {
                break guard;
            }
            thread::yield_now();
        };
        signal("KILL", &guard);
        self.signal_now("KILL");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal at once.
    pub(crate) fn signal_now(&self, name: &str) {
        signal(name, &self.child.id().to_string());
    }

    /// Returns whether it has a handler for USR1, which is installed last.
    fn handles_signals(&self) -> bool {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
        caught.is_none_or(|mask| mask & (1 << (10 - 1)) != 0)
    }

    /// Asks for the status with USR1 until it contains `part`.
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

    /// Waits for its exit while its input stays open.
    pub(crate) fn wait_with_open_input(mut self) -> Option<i32> {
        let stdin = self.stdin.take();
        let ran = self.wait();
        drop(stdin);
        ran.code
    }

    /// Waits for its exit.
    pub(crate) fn wait(mut self) -> Ran {
        drop(self.stdin.take());
        let Self { mut child, out, err, .. } = self;
        let status: ExitStatus =
            with_timeout("waiting for requeue", move || child.wait().unwrap());
        // Both streams end with the command: it leaves no process behind.
        let all = |lines: Receiver<String>| lines.into_iter().collect();
        let out = with_timeout("reading its output", move || all(out));
        let err = with_timeout("reading its errors", move || all(err));
        Ran { code: status.code(), out, err }
    }
}

/// Finds the guard of a requeue.
fn guard_of(pid: u32) -> Option<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    pids.find(|candidate| {
        let line = fs::read_to_string(format!("/proc/{candidate}/cmdline"));
        let line = line.unwrap_or_default();
        line.contains("\0__guard\0") && line.ends_with(&format!("\0{pid}\0"))
    })
}

pub(crate) fn signal(name: &str, pid: &str) {
    let sent =
        Command::new("kill").args([&format!("-{name}"), "--", pid]).status().unwrap();
    assert!(sent.success(), "cannot send {name} to {pid}");
}

/// Waits until a process has exited. It need not be a child.
pub(crate) fn wait_for_exit(pid: &str) {
    let pid = pid.to_owned();
    with_timeout("waiting for a process", move || {
        while is_alive(&pid) {
            thread::yield_now();
        }
    });
}

/// Returns whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}
