//! Bytes as a person can read them.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

/// The most bytes of a key or a line that are shown: one line of a terminal.
const SHOWN: usize = 120;

/// Bytes as text of one line: control characters are shown as such, long ones are cut.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len() > SHOWN;
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

/// Bytes without an end of a line or a column in them, which are written out.
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

/// As much as is shown, and no part of a character.
fn beginning(bytes: &[u8]) -> &[u8] {
    let begins = |at: &usize| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = (SHOWN - 3..=SHOWN).rev().find(begins).unwrap_or(SHOWN);
    &bytes[..end.min(bytes.len())]
}

/// The last line that is not blank.
pub(crate) fn last_line(bytes: &[u8]) -> String {
    let lines = bytes.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
    let last = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    shown(last.unwrap_or_default())
}

/// A duration with as many digits as matter.
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

/// One thing or several of them.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// An error and all its causes, on one line; a cause that repeats what was said is left
/// out.
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
    fn a_key_cannot_draw_on_the_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("Füße".as_bytes()), "Füße");
        assert_eq!(shown(b"\xff"), "\u{fffd}");
        assert_eq!(shown(&[b'x'; 500]).chars().count(), SHOWN + 1);
        let long = format!("x{}", "ü".repeat(100));
        assert_eq!(shown(long.as_bytes()), format!("x{}…", "ü".repeat(59)));
        assert_eq!(shown(&[0x80; 500]).chars().count(), SHOWN + 1);
    }

    #[test]
    fn the_last_line_is_the_last_that_says_something() {
        assert_eq!(last_line(b"one\ntwo\r\n\n  \n"), "two");
        assert_eq!(last_line(b""), "");
    }

    #[test]
    fn durations_are_short() {
        let shown = |micros| duration(Duration::from_micros(micros));
        let some = [70, 41_000, 1_940_000, 61_000_000, 7_261_000_000].map(shown);
        assert_eq!(some, ["70us", "41ms", "1.9s", "1m01s", "2h01m"]);
        assert_eq!([999_700, 59_970_000].map(shown), ["1.0s", "1m00s"]);
    }
}
