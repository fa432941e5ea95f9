//! A password on the command line, where everybody on the machine can read it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Tells that the store's address was moved to the environment by us.
const MOVED: &str = "REQUEUE_STORE_MOVED";

/// Starts this program anew with an address that holds a password in the environment, which
/// only its user can read. Returns if there is none, or if that cannot be done.
pub(crate) fn hide(address: Option<&OsStr>) -> Option<io::Error> {
    let address = address.filter(|address| has_password(address))?;
    let mut words = env::args_os();
    let name = words.next()?;
    let words = without(words.collect(), address)?;
    let program = env::current_exe().ok()?;
    let mut command = Command::new(program);
    command.arg0(name).args(words).env("REQUEUE_STORE", address).env(MOVED, "1");
    Some(command.exec())
}

/// Keeps commands from an address that was typed for us and not for them.
pub(crate) fn withhold(command: &mut Command) {
    command.env_remove(MOVED).env_remove("REQUEUE_STORE");
}

/// Whether the address was moved by us.
pub(crate) fn was_moved() -> bool {
    env::var_os(MOVED).is_some()
}

/// A complaint about what was typed, without the passwords in it; nothing if it has none.
pub(crate) fn masked(complaint: &str) -> Option<String> {
    without_secrets(complaint, env::args_os().skip(1))
}

fn without_secrets(
    complaint: &str,
    words: impl Iterator<Item = OsString>,
) -> Option<String> {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let masked = words.fold(complaint.to_owned(), |text, word| match secret_in(&word) {
        Some(secret) => text.replace(secret, "***"),
        None => text,
    });
    (masked != complaint).then_some(masked)
}

/// The part of a word that is or may be an address with a password, without its scheme.
fn secret_in(word: &str) -> Option<&str> {
    if let Some((_, rest)) = word.split_once("://") {
        return has_password(OsStr::new(word)).then_some(rest);
    }
    let user = word.rsplit_once('@').map_or("", |(user, _)| user);
    (user.contains(':') || word.contains("password=")).then_some(word)
}

fn has_password(address: &OsStr) -> bool {
    let text = address.to_string_lossy();
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':') || rest.contains("password=")
}

/// The words without the first that gives the address: words of the command that is run
/// come later.
fn without(mut words: Vec<OsString>, address: &OsStr) -> Option<Vec<OsString>> {
    let joined = [OsStr::new("--store"), address].join(OsStr::new("="));
    if let Some(at) = words.iter().position(|word| *word == joined) {
        words.remove(at);
        return Some(words);
    }
    let pairs = words.windows(2);
    let at =
        pairs.into_iter().position(|pair| pair[0] == "--store" && pair[1] == address)?;
    words.drain(at..at + 2);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn an_address_may_hold_a_password() {
        let holds = |address: &str| has_password(OsStr::new(address));
        assert!(holds("redis://:pw@host") && holds("postgres://me:pw@host/db"));
        assert!(holds("postgres://host/db?user=me&password=pw"));
        assert!(!holds("redis://host:6379") && !holds("postgres://me@host:5432/db"));
        assert!(!holds("./queue.db") && !holds("a:b@c"));
    }

    #[test]
    fn a_complaint_does_not_repeat_a_password() {
        let masked =
            |line: &str, complaint| without_secrets(complaint, words(line).into_iter());
        assert_eq!(
            masked("status redis://:pw@h", "no 'redis://:pw@h' here").as_deref(),
            Some("no 'redis://***' here")
        );
        assert_eq!(masked("add me:pw@h", "no 'me:pw@h'").as_deref(), Some("no '***'"));
        assert_eq!(masked("add redis://h k", "no 'redis://h'"), None);
        assert_eq!(masked("add redis://:pw@h", "no 'k'"), None);
    }

    #[test]
    fn only_the_word_that_was_meant_is_taken_away() {
        let address = OsStr::new("redis://:pw@h");
        let apart = words("run --store redis://:pw@h -j1 cmd --store redis://:pw@h");
        let left = words("run -j1 cmd --store redis://:pw@h");
        assert_eq!(without(apart, address), Some(left));
        assert_eq!(
            without(words("add --store=redis://:pw@h k"), address),
            Some(words("add k"))
        );
        assert_eq!(without(words("add k"), address), None);
    }
}
