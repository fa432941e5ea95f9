//! A command line with placeholders for the key.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::program::{CannotRun, find};

/// A command in which `{}` is replaced by the key.
#[derive(Debug)]
pub(crate) struct Template {
    /// The pieces of each word between its placeholders.
    words: Vec<Vec<Vec<u8>>>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// The words are the arguments. `program` is its path if it does not contain the key.
    Direct { program: Option<PathBuf> },
    /// One word, run by `sh -c`.
    Shell,
}

const PLACEHOLDER: &[u8] = b"{}";

impl Template {
    /// Parses a command. Appends the key if there is no placeholder.
    ///
    /// # Errors
    ///
    /// [`CannotRun`] if the program does not exist or cannot be executed.
    pub(crate) fn new(command: &[OsString], shell: bool) -> Result<Self, CannotRun> {
        let line = [command.join(OsStr::new(" "))];
        let mut words: Vec<_> = if shell { &line[..] } else { command }
            .iter()
            .map(|word| pieces(word.as_bytes()))
            .collect();
        if words.iter().all(|word| word.len() == 1) {
            append_key(&mut words, shell);
        }
        let form = if shell { Form::Shell } else { direct(command, &words)? };
        Ok(Self { words, form })
    }

    /// Returns the command for one key. It has no input and leads a process group.
    pub(crate) fn command(&self, key: &[u8]) -> Command {
        let mut command = match &self.form {
            Form::Direct { program } => self.direct(program.as_deref(), key),
            Form::Shell => self.shell(key),
        };
        // In a separate group, Ctrl-C does not reach the command, and a kill reaches its
        // descendants. Unlike `pre_exec`, this still allows posix_spawn instead of fork.
        command.process_group(0).stdin(Stdio::null());
        command
    }

    fn direct(&self, program: Option<&std::path::Path>, key: &[u8]) -> Command {
        let mut words = self.words.iter().map(|word| OsString::from_vec(word.join(key)));
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

    fn shell(&self, key: &[u8]) -> Command {
        let quoted = quote(key);
        let mut command = Command::new("/bin/sh");
        command.arg("-c");
        command.args(
            self.words.iter().map(|word| OsString::from_vec(word.join(&quoted[..]))),
        );
        command
    }
}

fn direct(command: &[OsString], words: &[Vec<Vec<u8>>]) -> Result<Form, CannotRun> {
    let is_fixed = words.first().is_some_and(|word| word.len() == 1);
    let program =
        is_fixed.then(|| find(command.first().map_or(OsStr::new(""), |word| word)));
    Ok(Form::Direct { program: program.transpose()? })
}

fn append_key(words: &mut Vec<Vec<Vec<u8>>>, shell: bool) {
    match words.first_mut() {
        Some(line) if shell => {
            line[0].push(b' ');
            line.push(Vec::new());
        }
        _ => words.push(vec![Vec::new(), Vec::new()]),
    }
}

/// Splits a word at its placeholders.
fn pieces(word: &[u8]) -> Vec<Vec<u8>> {
    let (mut pieces, mut rest) = (Vec::new(), word);
    while let Some(at) =
        rest.windows(PLACEHOLDER.len()).position(|part| part == PLACEHOLDER)
    {
        pieces.push(rest[..at].to_vec());
        rest = &rest[at + PLACEHOLDER.len()..];
    }
    pieces.push(rest.to_vec());
    pieces
}

/// Quotes a key with single quotes. Only a single quote itself needs escaping.
fn quote(key: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in key {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            _ => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str], shell: bool, key: &[u8]) -> Vec<OsString> {
        let command: Vec<_> = command.iter().map(OsString::from).collect();
        let command = Template::new(&command, shell).unwrap().command(key);
        command.get_args().map(OsStr::to_owned).collect()
    }

    #[test]
    fn key_replaces_every_placeholder() {
        assert_eq!(words(&["sh", "a{}b{}", "c", "{}"], false, b"K"), ["aKbK", "c", "K"]);
    }

    #[test]
    fn key_is_appended_without_a_placeholder() {
        assert_eq!(words(&["sh", "-x"], false, b"a b"), ["-x", "a b"]);
        assert_eq!(words(&["echo", "hi"], true, b"a b"), ["-c", "echo hi 'a b'"]);
    }

    #[test]
    fn shell_gets_one_line_with_the_quoted_key() {
        let wanted = ["-c", "echo 'it'\\''s' > 'it'\\''s'"];
        assert_eq!(words(&["echo {} >", "{}"], true, b"it's"), wanted);
    }

    #[test]
    fn keys_that_are_not_utf8_are_unchanged() {
        let wanted = OsString::from_vec(b"\xff\xfe".to_vec());
        assert_eq!(words(&["sh", "{}"], false, b"\xff\xfe"), [wanted]);
    }

    #[test]
    fn program_can_contain_the_key() {
        let template = Template::new(&["{}".into()], false).unwrap();
        assert_eq!(template.command(b"true").get_program(), "true");
        let absent = Template::new(&["no-such-program".into()], false).unwrap_err();
        assert_eq!(absent.code(), 127);
    }
}
