//! What was typed.

use std::path::PathBuf;

pub struct Options {
    /// The Go program.
    pub go: PathBuf,
    pub out: PathBuf,
    pub quick: bool,
    pub rounds: usize,
    /// The beginning of the names of the scenarios to run.
    pub only: String,
}

impl Options {
    pub fn from_args() -> Result<Self, String> {
        let mut options = Self {
            go: PathBuf::new(),
            out: PathBuf::from("."),
            quick: false,
            rounds: 0,
            only: String::new(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let mut value = || words.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--quick" => options.quick = true,
                "--go" => options.go = value()?.into(),
                "--out" => options.out = value()?.into(),
                "--only" => options.only = value()?,
                "--rounds" => options.rounds = number(&value()?)?,
                _ => return Err(format!("no such flag: {flag}")),
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 5 } else { 7 };
        }
        Ok(options)
    }
}

fn number(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| format!("not a number of rounds: {word}"))
}
