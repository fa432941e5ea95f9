//! A description of the machine and the versions.

use std::fs;
use std::process::Command;

/// Returns the processor, the number of cores, the compilers and the commit.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let versions = [
        first_line("rustc", &["--version"]),
        first_line("go", &["version"]).replace("go version ", ""),
        format!("commit {}", first_line("git", &["rev-parse", "--short", "HEAD"])),
    ];
    format!("{}, {cores} cores; {}", processor(), versions.join("; "))
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = info.lines();
    let name = lines.find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown processor", |(_, name)| name).to_owned()
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").to_owned()
}
