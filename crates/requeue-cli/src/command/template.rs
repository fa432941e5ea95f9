//! The words of a command, with places for the key.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::program::{CannotRun, find};

/// A command in which `{}` stands for the key.
#[derive(Debug)]
pub(crate) struct Template {
    /// Each word in the pieces that the key joins.
    words: Vec<Vec<Vec<u8>>>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// The words are the arguments. The program was looked up if it is the same for all
    /// keys.
    Direct { program: Option<PathBuf> },
    /// There is one word, for the shell.
    Shell,
}

const PLACE: &[u8] = b"{}";

impl Template {
    /// Reads a command, appending the key if it has no place in it.
    ///
    /// # Errors
    ///
    /// [`CannotRun`] if there is no such program, or it cannot be executed.
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

    /// The command for one key, which reads nothing and leads a process group.
    pub(crate) fn command(&self, key: &[u8]) -> Command {
        let mut command = match &self.form {
            Form::Direct { program } => self.direct(program.as_deref(), key),
            Form::Shell => self.shell(key),
        };
        // A group of its own lets Ctrl-C be ours alone, and a kill reach grandchildren.
        // It does not cost a fork, as `pre_exec` would.
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
    let same_for_all = words.first().is_some_and(|word| word.len() == 1);
    let program =
        same_for_all.then(|| find(command.first().map_or(OsStr::new(""), |word| word)));
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

/// The parts of a word around each place for the key.
fn pieces(word: &[u8]) -> Vec<Vec<u8>> {
    let (mut pieces, mut rest) = (Vec::new(), word);
    while let Some(at) = rest.windows(PLACE.len()).position(|part| part == PLACE) {
        pieces.push(rest[..at].to_vec());
        rest = &rest[at + PLACE.len()..];
    }
    pieces.push(rest.to_vec());
    pieces
}

/// The key in single quotes, which no byte but the quote itself can leave.
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
    fn the_key_goes_to_every_place() {
        assert_eq!(words(&["sh", "a{}b{}", "c", "{}"], false, b"K"), ["aKbK", "c", "K"]);
    }

    #[test]
    fn the_key_is_appended_where_it_has_no_place() {
        assert_eq!(words(&["sh", "-x"], false, b"a b"), ["-x", "a b"]);
        assert_eq!(words(&["echo", "hi"], true, b"a b"), ["-c", "echo hi 'a b'"]);
    }

    #[test]
    fn the_shell_gets_one_line_with_the_key_quoted() {
        let wanted = ["-c", "echo 'it'\\''s' > 'it'\\''s'"];
        assert_eq!(words(&["echo {} >", "{}"], true, b"it's"), wanted);
    }

    #[test]
    fn keys_that_are_no_text_stay_what_they_are() {
        let wanted = OsString::from_vec(b"\xff\xfe".to_vec());
        assert_eq!(words(&["sh", "{}"], false, b"\xff\xfe"), [wanted]);
    }

    #[test]
    fn the_program_may_depend_on_the_key() {
        let template = Template::new(&["{}".into()], false).unwrap();
        assert_eq!(template.command(b"true").get_program(), "true");
        let absent = Template::new(&["no-such-program".into()], false).unwrap_err();
        assert_eq!(absent.code(), 127);
    }
}
