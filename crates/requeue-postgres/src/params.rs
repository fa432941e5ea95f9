//! The parameters of an address, a URL or a list of `key=value`.
//!
//! The driver parses the address. This module takes out the parameters that only this
//! crate knows, and adds others. It parses lists exactly as the driver does: if the two
//! disagreed, a `sslmode` could be overlooked and TLS be off.

use std::fmt::Write as _;

use requeue_store::Error;

use crate::address::invalid;

/// An address, split into its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Params {
    /// A URL up to its `?`, and the decoded parameters behind it.
    Url {
        base: String,
        params: Vec<(String, String)>,
    },
    List {
        params: Vec<(String, String)>,
    },
}

impl Params {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Ok(Self::List { params: ListParser { rest: text }.params()? });
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut params = Vec::new();
        for param in query.split('&').filter(|param| !param.is_empty()) {
            let Some((name, value)) = param.split_once('=') else {
                return Err(invalid("it is incomplete"));
            };
            params.push((decoded(name)?, decoded(value)?));
        }
        Ok(Self::Url { base: base.to_owned(), params })
    }

    fn params(&self) -> &[(String, String)] {
        match self {
            Self::Url { params, .. } | Self::List { params } => params,
        }
    }

    fn params_mut(&mut self) -> &mut Vec<(String, String)> {
        match self {
            Self::Url { params, .. } | Self::List { params } => params,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.params().iter().any(|(other, _)| other == name)
    }

    /// Removes a parameter. Returns its value, the last one if it is repeated.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let mut value = None;
        for (_, taken) in self.params_mut().extract_all(name) {
            value = Some(taken);
        }
        value
    }

    pub(crate) fn push(&mut self, name: &str, value: &str) {
        self.params_mut().push((name.to_owned(), value.to_owned()));
    }

    /// Returns the address in the form that the driver parses.
    pub(crate) fn render(&self) -> String {
        let (base, mark, params) = match self {
            Self::Url { base, params } => (&**base, "?", params),
            Self::List { params } => ("", " ", params),
        };
        let pair = |(name, value): &(String, String)| match self {
            Self::Url { .. } => format!("{}={}", encoded(name), encoded(value)),
            Self::List { .. } => format!("{name}='{}'", escaped(value)),
        };
        let pairs: Vec<_> = params.iter().map(pair).collect();
        match self {
            Self::Url { .. } if pairs.is_empty() => base.to_owned(),
            Self::Url { .. } => format!("{base}{mark}{}", pairs.join("&")),
            Self::List { .. } => pairs.join(mark),
        }
    }
}

/// Removes all pairs of one name.
trait ExtractAll {
    fn extract_all(&mut self, name: &str) -> Vec<(String, String)>;
}

impl ExtractAll for Vec<(String, String)> {
    fn extract_all(&mut self, name: &str) -> Self {
        let all = std::mem::take(self);
        let (taken, left) = all.into_iter().partition(|(other, _)| other == name);
        *self = left;
        taken
    }
}

/// Parses `key = 'value'` pairs.
struct ListParser<'a> {
    rest: &'a str,
}

impl ListParser<'_> {
    fn params(mut self) -> Result<Vec<(String, String)>, Error> {
        let mut params = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() {
                return Ok(params);
            }
            let is_end = |c: char| c.is_whitespace() || c == '=';
            let end = self.rest.find(is_end).unwrap_or(self.rest.len());
            let (name, rest) = self.rest.split_at(end);
            let Some(rest) = rest.trim_start().strip_prefix('=') else {
                return Err(invalid("it is incomplete"));
            };
            if name.is_empty() {
                return Err(invalid("a parameter has no name"));
            }
            self.rest = rest.trim_start();
            params.push((name.to_owned(), self.value()?));
        }
    }

    fn value(&mut self) -> Result<String, Error> {
        let quoted = self.rest.starts_with('\'');
        let mut value = String::new();
        let mut chars = self.rest.char_indices().skip(usize::from(quoted));
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
                '\'' if quoted => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(value);
                }
                c if !quoted && c.is_whitespace() => {
                    self.rest = &self.rest[at..];
                    return Ok(value);
                }
                c => value.push(c),
            }
        }
        self.rest = "";
        if quoted {
            return Err(invalid("a quote is not closed"));
        }
        Ok(value)
    }
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let pair = more.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match byte {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &more[2..];
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| invalid("a parameter is not UTF-8"))
}

/// Encodes everything but letters, digits and a few harmless characters.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:,".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a string never fails");
        }
    }
    encoded
}

/// Escapes a value between quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<(String, String)> {
        Params::parse(text).unwrap().params().to_vec()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn list_may_have_spaces_quotes_and_escapes() {
        let text = r"host = db  password='it\'s  a \\ secret' sslmode= require user=a\ b";
        let expected = [
            ("host", "db"),
            ("password", r"it's  a \ secret"),
            ("sslmode", "require"),
            ("user", "a b"),
        ];
        assert_eq!(list(text), pairs(&expected));
    }

    #[test]
    fn rendered_list_has_the_same_parameters() {
        let text = r"host=db password='it\'s \\ é' options=''";
        let rendered = Params::parse(text).unwrap().render();
        assert_eq!(list(&rendered), list(text));
    }

    #[test]
    fn rendered_url_has_the_same_parameters() {
        let text = "postgres://me@db/app?options=-c%20a%3Db&application_name=x%26y";
        let params = Params::parse(text).unwrap();
        assert_eq!(
            params.params(),
            pairs(&[("options", "-c a=b"), ("application_name", "x&y")])
        );
        assert_eq!(Params::parse(&params.render()).unwrap(), params);
    }

    #[test]
    fn last_of_repeated_parameters_counts() {
        let mut params =
            Params::parse("host=db sslmode=disable sslmode=require").unwrap();
        assert_eq!(params.take("sslmode").as_deref(), Some("require"));
        assert_eq!(params.render(), "host='db'");
    }

    #[test]
    fn incomplete_list_is_rejected() {
        for text in ["host", "host=db user", "host='db", "host=db =x"] {
            Params::parse(text).unwrap_err();
        }
    }
}
