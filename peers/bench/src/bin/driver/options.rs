//! The command line.

use std::path::PathBuf;

pub struct Options {
    /// The Go program.
    pub go: PathBuf,
    /// The folder for the results.
    pub out: PathBuf,
    /// The folder of `PERFORMANCE.md`, if it is to be updated.
    pub docs: Option<PathBuf>,
    /// Results of an earlier run, to render instead of measuring.
    pub from: Option<PathBuf>,
    pub quick: bool,
    pub runs: usize,
    pub rounds: usize,
    /// Measure only scenarios whose id starts with this.
    pub only: String,
}

impl Options {
    pub fn from_args() -> Result<Self, String> {
        let mut options = Self {
            go: PathBuf::new(),
            out: PathBuf::from("."),
            docs: None,
            from: None,
            quick: false,
            runs: 3,
            rounds: 0,
            only: String::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--quick" => options.quick = true,
                "--go" => options.go = value()?.into(),
                "--out" => options.out = value()?.into(),
                "--docs" => options.docs = Some(value()?.into()),
                "--from" => options.from = Some(value()?.into()),
                "--only" => options.only = value()?,
                "--runs" => options.runs = number(&value()?)?,
                "--rounds" => options.rounds = number(&value()?)?,
                _ => return Err(format!("unknown flag {flag}")),
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 3 } else { 7 };
        }
        Ok(options)
    }
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or(format!("{text:?} is not a positive number"))
}
