//! Formats keys, durations, counts and errors for people.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

/// Maximum number of bytes shown of a key or a line.
const MAX_SHOWN: usize = 120;

/// Formats bytes as one line of text: escapes control characters, cuts long text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len() > MAX_SHOWN;
    let mut plain = escaped(&String::from_utf8_lossy(beginning(bytes))).into_owned();
    if cut {
        plain.push('…');
    }
    plain
}

/// Escapes characters that a terminal obeys instead of showing.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe)
}

/// Like [`escaped`], but keeps line ends and tabs.
pub(crate) fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_unsafe(c) && !"\n\t".contains(c))
}

fn escape(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    Cow::Owned(plain)
}

/// Returns whether a character controls the terminal, or changes the order of the text around
/// it.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats a key for `--tag`: complete, on one line, without control characters. Bytes that
/// are not UTF-8 become `\x` and two digits.
pub(super) fn tag(key: &[u8]) -> Vec<u8> {
    let mut text = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        text += &escaped(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            write!(text, "\\x{byte:02x}").unwrap_or_default();
        }
    }
    text.into_bytes()
}

/// Formats JSON in which no character controls a terminal.
pub(crate) fn json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(is_unsafe) {
        return text;
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            // They are all in strings, and all in the basic plane.
            write!(plain, "\\u{:04x}", u32::from(c)).unwrap_or_default();
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Cuts bytes to the shown length without splitting a character.
fn beginning(bytes: &[u8]) -> &[u8] {
    let begins = |at: &usize| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = (MAX_SHOWN - 3..=MAX_SHOWN).rev().find(begins).unwrap_or(MAX_SHOWN);
    &bytes[..end.min(bytes.len())]
}

/// Returns the last non-blank line.
pub(crate) fn last_line(bytes: &[u8]) -> String {
    let lines = bytes.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
    let last = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    shown(last.unwrap_or_default())
}

/// Formats a duration with two or three digits.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds < 0.000_999_5 => format!("{:.0}us", seconds * 1e6),
        _ if seconds < 0.9995 => format!("{:.0}ms", seconds * 1e3),
        _ if seconds < 59.95 => format!("{seconds:.1}s"),
        _ if seconds < 3600.0 => {
            let whole = time.as_secs().max(60);
            format!("{}m{:02}s", whole / 60, whole % 60)
        }
        _ => format!("{}h{:02}m", time.as_secs() / 3600, time.as_secs() / 60 % 60),
    }
}

/// Formats a number with its noun.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Formats an error and its causes on one line. Skips a cause that is already at the end.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_cannot_control_the_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("Füße".as_bytes()), "Füße");
        assert_eq!(shown(b"\xff"), "\u{fffd}");
        assert_eq!(shown(&[b'x'; 500]).chars().count(), MAX_SHOWN + 1);
        let long = format!("x{}", "ü".repeat(100));
        assert_eq!(shown(long.as_bytes()), format!("x{}…", "ü".repeat(59)));
        assert_eq!(shown(&[0x80; 500]).chars().count(), MAX_SHOWN + 1);
    }

    #[test]
    fn text_cannot_change_the_order_of_a_line() {
        assert_eq!(shown("a\u{202e}b\u{9b}".as_bytes()), "a\\u{202e}b\\u{9b}");
        assert_eq!(escaped_lines("a\tb\n\x1b"), "a\tb\n\\u{1b}");
        assert!(matches!(escaped("plain ü"), Cow::Borrowed(_)));
    }

    #[test]
    fn tag_is_complete_and_printable() {
        assert_eq!(tag(b"a\n\xff\x9bb"), b"a\\n\\xff\\x9bb");
        assert_eq!(tag(&[b'x'; 500]).len(), 500);
    }

    #[test]
    fn json_escapes_what_a_terminal_obeys() {
        let value = Value::from("\u{9b}\u{202e}\u{7f}\n");
        assert_eq!(json(&value), r#""\u009b\u202e\u007f\n""#);
        assert_eq!(serde_json::from_str::<Value>(&json(&value)).unwrap(), value);
    }

    #[test]
    fn last_line_is_the_last_non_blank_one() {
        assert_eq!(last_line(b"one\ntwo\r\n\n  \n"), "two");
        assert_eq!(last_line(b""), "");
    }

    #[test]
    fn durations_have_two_or_three_digits() {
        let shown = |micros| duration(Duration::from_micros(micros));
        let some = [70, 41_000, 1_940_000, 61_000_000, 7_261_000_000].map(shown);
        assert_eq!(some, ["70us", "41ms", "1.9s", "1m01s", "2h01m"]);
        assert_eq!([999_700, 59_970_000].map(shown), ["1.0s", "1m00s"]);
    }
}
