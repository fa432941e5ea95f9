//! Hides passwords on the command line, where every user of the machine can read them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set if requeue itself moved the address of the store into the environment.
const MOVED: &str = "REQUEUE_STORE_MOVED";

/// The address of the store.
const STORE: &str = "REQUEUE_STORE";

/// Moves an address with a password into the environment, by executing this program again.
///
/// Only the user can read the environment. Returns if the address has no password, or if the
/// program cannot be executed.
pub(crate) fn hide(address: Option<&OsStr>) -> Option<io::Error> {
    let address = address.filter(|address| has_password(address))?;
    let mut words = env::args_os();
    let name = words.next()?;
    let words = without(words.collect(), address)?;
    let program = env::current_exe().ok()?;
    let mut command = Command::new(program);
    command.arg0(name).args(words).env(STORE, address).env(MOVED, "1");
    Some(command.exec())
}

/// Returns the variables with the password of the store.
///
/// A command does not inherit them. An address without a password is inherited, because a
/// command may add keys.
pub(crate) fn variables(is_postgres: bool) -> Vec<&'static str> {
    let mut secrets = vec![MOVED];
    if was_moved() || env::var_os(STORE).is_some_and(|address| has_password(&address)) {
        secrets.push(STORE);
    }
    if is_postgres {
        secrets.push("PGPASSWORD");
    }
    secrets
}

/// Returns whether the address was moved into the environment by requeue itself.
pub(crate) fn was_moved() -> bool {
    env::var_os(MOVED).is_some()
}

/// Masks passwords in a usage error. Returns `None` if there are none.
pub(crate) fn masked(message: &str) -> Option<String> {
    without_secrets(message, env::args_os().skip(1))
}

fn without_secrets(
    message: &str,
    words: impl Iterator<Item = OsString>,
) -> Option<String> {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let masked = words.fold(message.to_owned(), |text, word| match secret_in(&word) {
        Some(secret) => text.replace(secret, "***"),
        None => text,
    });
    (masked != message).then_some(masked)
}

/// Returns the part of a word that may contain a password: the address without its scheme.
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

/// Removes the first `--store` with this address. Later words belong to the command to run.
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
    fn passwords_in_addresses_are_found() {
        let holds = |address: &str| has_password(OsStr::new(address));
        assert!(holds("redis://:pw@host") && holds("postgres://me:pw@host/db"));
        assert!(holds("postgres://host/db?user=me&password=pw"));
        assert!(!holds("redis://host:6379") && !holds("postgres://me@host:5432/db"));
        assert!(!holds("./queue.db") && !holds("a:b@c"));
    }

    #[test]
    fn usage_errors_do_not_repeat_a_password() {
        let masked =
            |line: &str, message| without_secrets(message, words(line).into_iter());
        assert_eq!(
            masked("status redis://:pw@h", "no 'redis://:pw@h' here").as_deref(),
            Some("no 'redis://***' here")
        );
        assert_eq!(masked("add me:pw@h", "no 'me:pw@h'").as_deref(), Some("no '***'"));
        assert_eq!(masked("add redis://h k", "no 'redis://h'"), None);
        assert_eq!(masked("add redis://:pw@h", "no 'k'"), None);
    }

    #[test]
    fn only_the_flag_of_requeue_itself_is_removed() {
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
