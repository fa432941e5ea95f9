//! Hexadecimal encoding of bytes.

use std::fmt::Write as _;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

/// Decodes hexadecimal text. Returns `None` if it is truncated or invalid.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_reverses_encoding() {
        for bytes in [&b""[..], b"a key", b"\0\xff\x0a"] {
            assert_eq!(unhex(&hex(bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn invalid_text_is_rejected() {
        for text in ["6", "616", "+f", "6g", "ß"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
