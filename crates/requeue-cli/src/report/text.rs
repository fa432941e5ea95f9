//! Formats keys, durations, counts and errors for people.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

/// Maximum number of bytes shown of a key or a line.
const MAX_SHOWN: usize = 120;

/// Formats bytes as one line of text: escapes control characters, cuts long text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len() > MAX_SHOWN;
    let text = String::from_utf8_lossy(beginning(bytes));
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    if cut {
        plain.push('…');
    }
    plain
}

/// Escapes line ends and tabs.
pub(super) fn one_line(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.iter().any(|byte| b"\n\r\t".contains(byte)) {
        return Cow::Borrowed(bytes);
    }
    let written = |byte: &u8| match byte {
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\t' => b"\\t".to_vec(),
        byte => vec![*byte],
    };
    Cow::Owned(bytes.iter().flat_map(written).collect())
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
