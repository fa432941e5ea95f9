//! Placeholders of a command template, and their values for a key.

use std::borrow::Cow;

/// A part of a command that depends on the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
    /// `{}`: the key.
    Key,
    /// `{.}`: the key without its extension.
    Stem,
    /// `{/}`: the part after the last slash.
    Name,
    /// `{//}`: the part before the last slash.
    Dir,
    /// `{#}`: the number of the run.
    Number,
}

const ALL: [(&[u8], Placeholder); 5] = [
    (b"{}", Placeholder::Key),
    (b"{.}", Placeholder::Stem),
    (b"{/}", Placeholder::Name),
    (b"{//}", Placeholder::Dir),
    (b"{#}", Placeholder::Number),
];

impl Placeholder {
    /// Returns the placeholder at the start of `text`, and its length.
    pub(super) fn at(text: &[u8]) -> Option<(Self, usize)> {
        let (name, found) = ALL.into_iter().find(|(name, _)| text.starts_with(name))?;
        Some((found, name.len()))
    }

    /// Returns the environment variable that holds the value in a shell command.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Key => "REQUEUE_KEY",
            Self::Stem => "REQUEUE_KEY_STEM",
            Self::Name => "REQUEUE_KEY_NAME",
            Self::Dir => "REQUEUE_KEY_DIR",
            Self::Number => "REQUEUE_RUN",
        }
    }

    /// Returns the value for a key and the number of its run.
    pub(super) fn value(self, key: &[u8], number: u64) -> Cow<'_, [u8]> {
        match self {
            Self::Key => key.into(),
            Self::Stem => stem(key).into(),
            Self::Name => name(key).into(),
            Self::Dir => dir(key).into(),
            Self::Number => number.to_string().into_bytes().into(),
        }
    }
}

/// Cuts the extension off. A dot at the start of a file name does not start an extension.
fn stem(key: &[u8]) -> &[u8] {
    let file = key.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let dot = key[file..].iter().rposition(|byte| *byte == b'.');
    match dot {
        Some(dot) if dot > 0 => &key[..file + dot],
        _ => key,
    }
}

fn name(key: &[u8]) -> &[u8] {
    let path = without_trailing_slashes(key);
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if last.is_empty() { path } else { last }
}

fn dir(key: &[u8]) -> &[u8] {
    let path = without_trailing_slashes(key);
    match path.iter().rposition(|byte| *byte == b'/') {
        None => b".",
        Some(0) => b"/",
        Some(slash) => without_trailing_slashes(&path[..slash]),
    }
}

/// Keeps the slash of the root directory.
fn without_trailing_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    &path[..end.min(path.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parts_of_a_path() {
        let values = |key: &str| {
            [Placeholder::Stem, Placeholder::Name, Placeholder::Dir].map(|part| {
                String::from_utf8(part.value(key.as_bytes(), 7).into_owned()).unwrap()
            })
        };
        assert_eq!(values("a/b.tar.gz"), ["a/b.tar", "b.tar.gz", "a"]);
        assert_eq!(values("b"), ["b", "b", "."]);
        assert_eq!(values("/b"), ["/b", "b", "/"]);
        assert_eq!(values("a.d/b"), ["a.d/b", "b", "a.d"]);
        assert_eq!(values("x/.profile"), ["x/.profile", ".profile", "x"]);
        assert_eq!(values("a/b//"), ["a/b//", "b", "a"]);
        assert_eq!(values("/"), ["/", "/", "/"]);
        assert_eq!(&*Placeholder::Number.value(b"k", 7), b"7");
    }

    #[test]
    fn longest_spelling_is_found() {
        assert_eq!(Placeholder::at(b"{//}x"), Some((Placeholder::Dir, 4)));
        assert_eq!(Placeholder::at(b"{/}"), Some((Placeholder::Name, 3)));
        assert_eq!(Placeholder::at(b"{a}"), None);
    }
}
