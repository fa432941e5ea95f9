//! A command line with placeholders for the key.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::placeholder::Placeholder;
use super::program::{CannotRun, find};
use super::shell;

/// A command in which placeholders are replaced by the key or parts of it.
#[derive(Debug)]
pub(crate) enum Template {
    /// The words are the arguments. `program` is its path if it does not contain the key.
    Direct { words: Vec<Word>, program: Option<PathBuf> },
    /// A script for `sh -c`. The placeholders are variables in its environment.
    Shell { script: OsString, used: Vec<Placeholder> },
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Placeholder(Placeholder),
}

/// The key of a run, and the number of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) number: u64,
}

impl Template {
    /// Parses a command. Appends the key if there is no placeholder.
    ///
    /// # Errors
    ///
    /// [`CannotRun`] if the program does not exist or cannot be executed, or an error about a
    /// placeholder that a shell command cannot replace safely.
    pub(crate) fn new(command: &[OsString], shell: bool) -> Result<Self> {
        if shell { Self::shell(command) } else { Ok(Self::direct(command)?) }
    }

    fn shell(command: &[OsString]) -> Result<Self> {
        let mut line = command.join(OsStr::new(" "));
        if !Word::new(line.as_bytes()).has_placeholder() {
            line.push(" {}");
        }
        let (script, used) = shell::compile(line.as_bytes())?;
        Ok(Self::Shell { script: OsString::from_vec(script), used })
    }

    fn direct(command: &[OsString]) -> Result<Self, CannotRun> {
        let mut words: Vec<_> =
            command.iter().map(|word| Word::new(word.as_bytes())).collect();
        if !words.iter().any(Word::has_placeholder) {
            words.push(Word(vec![Piece::Placeholder(Placeholder::Key)]));
        }
        let is_fixed = words.first().is_some_and(|word| !word.has_placeholder());
        let program =
            is_fixed.then(|| find(command.first().map_or(OsStr::new(""), |word| word)));
        Ok(Self::Direct { words, program: program.transpose()? })
    }

    /// Returns the command for one run. It has no input and leads a process group.
    pub(crate) fn command(&self, subject: Subject<'_>) -> Command {
        let mut command = match self {
            Self::Direct { words, program } => {
                direct_command(words, program.as_deref(), subject)
            }
            Self::Shell { script, used } => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(script);
                for placeholder in used {
                    let value = placeholder.value(subject.key, subject.number);
                    command.env(placeholder.variable(), OsStr::from_bytes(&value));
                }
                command
            }
        };
        // In a separate group, Ctrl-C does not reach the command, and a kill reaches its
        // descendants. Unlike `pre_exec`, this still allows posix_spawn instead of fork.
        command.process_group(0).stdin(Stdio::null());
        command
    }

    /// Formats the command for one run as a shell command line.
    pub(crate) fn line(&self, subject: Subject<'_>) -> String {
        let quoted = |bytes: &[u8]| quote(&String::from_utf8_lossy(bytes));
        match self {
            Self::Direct { words, .. } => {
                let words = words.iter().map(|word| quoted(&word.value(subject)));
                words.collect::<Vec<_>>().join(" ")
            }
            Self::Shell { script, used } => {
                let mut line = String::new();
                for placeholder in used {
                    let value = placeholder.value(subject.key, subject.number);
                    // Writing to a string cannot fail.
                    write!(line, "{}={} ", placeholder.variable(), quoted(&value))
                        .unwrap_or_default();
                }
                line + "sh -c " + &quoted(script.as_bytes())
            }
        }
    }
}

fn direct_command(
    words: &[Word],
    program: Option<&std::path::Path>,
    subject: Subject<'_>,
) -> Command {
    let mut words = words.iter().map(|word| OsString::from_vec(word.value(subject)));
    let first = words.next().unwrap_or_default();
    let mut command = match program {
        Some(path) => {
            let mut command = Command::new(path);
            command.arg0(&first);
            command
        }
        None => Command::new(&first),
    };
    command.args(words);
    command
}

impl Word {
    /// Splits a word at its placeholders.
    fn new(word: &[u8]) -> Self {
        let (mut pieces, mut text, mut at) = (Vec::new(), Vec::new(), 0);
        while at < word.len() {
            if let Some((found, length)) = Placeholder::at(&word[at..]) {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Placeholder(found));
                at += length;
            } else {
                text.push(word[at]);
                at += 1;
            }
        }
        pieces.push(Piece::Text(text));
        Self(pieces)
    }

    fn has_placeholder(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Placeholder(_)))
    }

    fn value(&self, subject: Subject<'_>) -> Vec<u8> {
        let mut value = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => value.extend_from_slice(text),
                Piece::Placeholder(found) => {
                    value.extend_from_slice(&found.value(subject.key, subject.number));
                }
            }
        }
        value
    }
}

/// Quotes a word for a shell, if it needs quotes.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_+=,.:@/%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(command: &[&str], shell: bool) -> Template {
        let command: Vec<_> = command.iter().map(OsString::from).collect();
        Template::new(&command, shell).unwrap()
    }

    fn words(command: &[&str], shell: bool, key: &[u8]) -> Vec<OsString> {
        let command = template(command, shell).command(Subject { key, number: 3 });
        command.get_args().map(OsStr::to_owned).collect()
    }

    #[test]
    fn key_replaces_every_placeholder() {
        assert_eq!(words(&["sh", "a{}b{}", "c", "{}"], false, b"K"), ["aKbK", "c", "K"]);
        assert_eq!(
            words(&["sh", "{.}", "{/}", "{//}", "{#}"], false, b"a/b.c"),
            ["a/b", "b.c", "a", "3"]
        );
    }

    #[test]
    fn key_is_appended_without_a_placeholder() {
        assert_eq!(words(&["sh", "-x"], false, b"a b"), ["-x", "a b"]);
        let wanted = ["-c", "echo hi \"${REQUEUE_KEY}\""];
        assert_eq!(words(&["echo", "hi"], true, b"a b"), wanted);
    }

    #[test]
    fn shell_gets_one_line_without_the_key() {
        let wanted = ["-c", "echo \"${REQUEUE_KEY}\" > \"${REQUEUE_KEY}\""];
        assert_eq!(words(&["echo {} >", "{}"], true, b"it's"), wanted);
    }

    #[test]
    fn line_can_be_pasted_into_a_shell() {
        let line = |command: &[&str], shell| {
            template(command, shell).line(Subject { key: b"it's", number: 1 })
        };
        assert_eq!(line(&["sh", "-x", "{}"], false), "sh -x 'it'\\''s'");
        assert_eq!(
            line(&["echo {}"], true),
            "REQUEUE_KEY='it'\\''s' sh -c 'echo \"${REQUEUE_KEY}\"'"
        );
    }

    #[test]
    fn keys_that_are_not_utf8_are_unchanged() {
        let wanted = OsString::from_vec(b"\xff\xfe".to_vec());
        assert_eq!(words(&["sh", "{}"], false, b"\xff\xfe"), [wanted]);
    }

    #[test]
    fn program_can_contain_the_key() {
        let template = template(&["{}"], false);
        let command = template.command(Subject { key: b"true", number: 1 });
        assert_eq!(command.get_program(), "true");
        let absent = Template::new(&["no-such-program".into()], false).unwrap_err();
        assert_eq!(absent.downcast_ref().map(CannotRun::code), Some(127));
    }
}
