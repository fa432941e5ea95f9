//! Turns a shell template into a script that contains no key.
//!
//! Every placeholder becomes a reference to an environment variable. A shell does not parse
//! the value of a variable, so a key cannot become code, even where this module misjudges the
//! quotes around a placeholder; a misjudged key is at worst split into words.
//!
//! | around the placeholder | replacement |
//! |---|---|
//! | no quotes | `"${REQUEUE_KEY}"` |
//! | double quotes, here-document | `${REQUEUE_KEY}` |
//! | single quotes | `'"${REQUEUE_KEY}"'` |
//! | arithmetic, array subscript, `[[ ]]` | refused: bash runs commands in subscripts |
//! | here-document with a quoted delimiter | refused: it expands nothing |
//! | comment | unchanged |

use std::fmt;

use super::placeholder::Placeholder;

/// A template in which a placeholder cannot be replaced safely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsafeTemplate {
    Arithmetic,
    Condition,
    HereDocument,
}

impl fmt::Display for UnsafeTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arithmetic => {
                "--shell does not allow {} in arithmetic or in an array subscript, where \
                 some shells run parts of a key as code; check that the key is a number, \
                 assign it with n={}, and use n"
            }
            Self::Condition => {
                "--shell does not allow {} inside [[ ]], where some shells run parts of a \
                 key as code; write [ {} = value ] or a case command"
            }
            Self::HereDocument => {
                "--shell does not allow {} in a here-document with a quoted delimiter, \
                 which expands nothing; remove the quotes around the delimiter"
            }
        })
    }
}

impl std::error::Error for UnsafeTemplate {}

/// Replaces the placeholders of a template. Returns the script and the placeholders in it.
pub(super) fn compile(
    template: &[u8],
) -> Result<(Vec<u8>, Vec<Placeholder>), UnsafeTemplate> {
    let mut lexer = Lexer::new(template, Frame::bare(End::Text));
    while lexer.at < template.len() {
        lexer.step()?;
    }
    Ok((lexer.script, lexer.used))
}

/// A construct that the lexer is inside of.
#[derive(Debug)]
enum Frame {
    /// Words are separated and all quotes work.
    Bare(Bare),
    Double,
    Single,
    /// `${name...}`. `quoted`: inside double quotes. `word`: a word follows the operator.
    Parameter {
        quoted: bool,
        word: bool,
    },
    /// `$((...))` or `((...))` with this many open parentheses.
    Arithmetic(usize),
    /// The body of a here-document: quotes are ordinary characters.
    Body,
}

#[derive(Debug)]
struct Bare {
    end: End,
    /// Open parentheses of subshells.
    parens: usize,
    /// Open `case` commands, whose patterns end with a closing parenthesis.
    cases: usize,
    /// Inside `[[ ]]`.
    condition: bool,
    word: Vec<u8>,
    documents: Vec<HereDocument>,
}

/// The end of a [`Bare`] frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Text,
    Paren,
    Backtick,
}

/// A here-document whose body starts after the next newline.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HereDocument {
    delimiter: Vec<u8>,
    quoted: bool,
    tabs: bool,
}

impl Frame {
    fn bare(end: End) -> Self {
        Self::Bare(Bare {
            end,
            parens: 0,
            cases: 0,
            condition: false,
            word: Vec::new(),
            documents: Vec::new(),
        })
    }
}

impl Bare {
    /// Ends the current word, and follows the words that change the meaning of parentheses.
    fn end_word(&mut self) {
        match &self.word[..] {
            b"case" => self.cases += 1,
            b"esac" => self.cases = self.cases.saturating_sub(1),
            b"[[" => self.condition = true,
            b"]]" => self.condition = false,
            _ => {}
        }
        self.word.clear();
    }

    /// Returns whether the current word starts with `name[`.
    fn is_subscript(&self) -> bool {
        let name = self.word.iter().position(|byte| !is_name(*byte)).unwrap_or(0);
        name > 0 && self.word[name] == b'['
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    frames: Vec<Frame>,
    script: Vec<u8>,
    used: Vec<Placeholder>,
}

impl<'t> Lexer<'t> {
    fn new(text: &'t [u8], frame: Frame) -> Self {
        Self { text, at: 0, frames: vec![frame], script: Vec::new(), used: Vec::new() }
    }

    fn rest(&self) -> &'t [u8] {
        &self.text[self.at..]
    }

    fn copy(&mut self, length: usize) {
        let end = (self.at + length).min(self.text.len());
        self.script.extend_from_slice(&self.text[self.at..end]);
        self.at = end;
    }

    fn push(&mut self, length: usize, frame: Frame) {
        self.copy(length);
        self.frames.push(frame);
    }

    /// Copies the end of a construct. The outermost frame stays.
    fn pop(&mut self, length: usize) {
        self.copy(length);
        if self.frames.len() > 1 {
            self.frames.pop();
        }
    }

    fn step(&mut self) -> Result<(), UnsafeTemplate> {
        let after_dollar = self.at > 0 && self.text[self.at - 1] == b'$';
        let found = Placeholder::at(self.rest()).filter(|_| !after_dollar);
        if let Some((found, length)) = found {
            self.replace(found)?;
            self.at += length;
            return Ok(());
        }
        let byte = self.rest()[0];
        match (self.frames.last(), byte) {
            (Some(Frame::Single), b'\'') => self.pop(1),
            (Some(Frame::Single), _) => self.copy(1),
            (_, b'\\') => self.escape(),
            (Some(Frame::Bare(_)), _) => return self.step_bare(),
            (Some(Frame::Arithmetic(_)), _) => self.step_arithmetic(),
            (Some(Frame::Double), b'"') | (Some(Frame::Parameter { .. }), b'}') => {
                self.pop(1);
            }
            (Some(Frame::Parameter { quoted: false, .. }), b'\'' | b'"') => {
                self.opens_quote();
            }
            _ => {
                if !self.opens_expansion() {
                    self.copy(1);
                }
            }
        }
        Ok(())
    }

    /// Writes the reference that stands for a placeholder.
    fn replace(&mut self, found: Placeholder) -> Result<(), UnsafeTemplate> {
        let name = found.variable();
        let reference = match self.frames.last_mut() {
            Some(Frame::Arithmetic(_) | Frame::Parameter { word: false, .. }) => {
                return Err(UnsafeTemplate::Arithmetic);
            }
            Some(Frame::Bare(bare)) if bare.is_subscript() => {
                return Err(UnsafeTemplate::Arithmetic);
            }
            Some(Frame::Bare(bare)) if bare.condition => {
                return Err(UnsafeTemplate::Condition);
            }
            Some(Frame::Bare(bare)) => {
                bare.word.push(b'"');
                format!("\"${{{name}}}\"")
            }
            Some(Frame::Parameter { quoted: false, .. }) => format!("\"${{{name}}}\""),
            Some(Frame::Single) => format!("'\"${{{name}}}\"'"),
            Some(Frame::Double | Frame::Parameter { .. } | Frame::Body) | None => {
                format!("${{{name}}}")
            }
        };
        self.script.extend_from_slice(reference.as_bytes());
        if !self.used.contains(&found) {
            self.used.push(found);
        }
        Ok(())
    }

    fn escape(&mut self) {
        if let Some(Frame::Bare(bare)) = self.frames.last_mut() {
            bare.word.push(b'\\');
        }
        self.copy(2);
    }

    fn step_bare(&mut self) -> Result<(), UnsafeTemplate> {
        let rest = self.rest();
        let Some(Frame::Bare(bare)) = self.frames.last_mut() else { return Ok(()) };
        match rest[0] {
            b'`' if bare.end == End::Backtick => self.pop(1),
            b'(' if rest.starts_with(b"((") => self.push(2, Frame::Arithmetic(2)),
            b'(' => {
                bare.end_word();
                bare.parens += 1;
                self.copy(1);
            }
            b')' => self.close_paren(),
            b'#' if bare.word.is_empty() => {
                let end = rest.iter().position(|byte| *byte == b'\n');
                self.copy(end.unwrap_or(rest.len()));
            }
            b'\n' => {
                bare.end_word();
                let documents = std::mem::take(&mut bare.documents);
                self.copy(1);
                for document in documents {
                    self.copy_body(&document)?;
                }
            }
            b'<' if rest.starts_with(b"<<<") => self.copy(3),
            b'<' if rest.starts_with(b"<<") => self.here_document(),
            b' ' | b'\t' | b';' | b'&' | b'|' | b'<' | b'>' => {
                bare.end_word();
                self.copy(1);
            }
            _ if self.opens_quote() || self.opens_expansion() => {}
            byte => {
                if let Some(Frame::Bare(bare)) = self.frames.last_mut() {
                    bare.word.push(byte);
                }
                self.copy(1);
            }
        }
        Ok(())
    }

    fn close_paren(&mut self) {
        let Some(Frame::Bare(bare)) = self.frames.last_mut() else { return };
        bare.end_word();
        if bare.parens > 0 {
            bare.parens -= 1;
            self.copy(1);
        } else if bare.cases == 0 && bare.end == End::Paren {
            self.pop(1);
        } else {
            self.copy(1);
        }
    }

    fn step_arithmetic(&mut self) {
        let byte = self.rest()[0];
        let Some(Frame::Arithmetic(open)) = self.frames.last_mut() else { return };
        match byte {
            b'(' => *open += 1,
            b')' => *open -= 1,
            _ => {}
        }
        if *open == 0 { self.pop(1) } else { self.copy(1) }
    }

    /// Enters quotes, if the next byte is one.
    fn opens_quote(&mut self) -> bool {
        let byte = self.rest()[0];
        let frame = match byte {
            b'\'' => Frame::Single,
            b'"' => Frame::Double,
            _ => return false,
        };
        if let Some(Frame::Bare(bare)) = self.frames.last_mut() {
            bare.word.push(byte);
        }
        self.push(1, frame);
        true
    }

    /// Enters a substitution or an expansion, if one starts here.
    fn opens_expansion(&mut self) -> bool {
        let rest = self.rest();
        if let (b'$' | b'`', Some(Frame::Bare(bare))) = (rest[0], self.frames.last_mut())
        {
            bare.word.push(rest[0]);
        }
        match rest {
            [b'`', ..] => self.push(1, Frame::bare(End::Backtick)),
            [b'$', b'(', b'(', ..] => self.push(3, Frame::Arithmetic(2)),
            [b'$', b'(', ..] => self.push(2, Frame::bare(End::Paren)),
            [b'$', b'{', ..] => {
                let quoted = match self.frames.last() {
                    Some(Frame::Bare(_)) => false,
                    Some(Frame::Parameter { quoted, .. }) => *quoted,
                    _ => true,
                };
                let (length, word) = parameter(&rest[2..]);
                self.push(2 + length, Frame::Parameter { quoted, word });
            }
            _ => return false,
        }
        true
    }

    /// Reads `<<DELIMITER`.
    fn here_document(&mut self) {
        let rest = self.rest();
        let tabs = rest.get(2) == Some(&b'-');
        let start = 2 + usize::from(tabs);
        let blank = rest[start..].iter().take_while(|byte| b" \t".contains(byte)).count();
        let word = &rest[start + blank..];
        let end = word.iter().position(|byte| b" \t\n;&|<>()".contains(byte));
        let word = &word[..end.unwrap_or(word.len())];
        let is_quote = |byte: &u8| b"'\"\\".contains(byte);
        let delimiter = word.iter().copied().filter(|byte| !is_quote(byte)).collect();
        let quoted = word.iter().any(is_quote);
        if let Some(Frame::Bare(bare)) = self.frames.last_mut() {
            bare.end_word();
            bare.documents.push(HereDocument { delimiter, quoted, tabs });
        }
        self.copy(start + blank + word.len());
    }

    /// Copies the body of a here-document and its last line.
    fn copy_body(&mut self, document: &HereDocument) -> Result<(), UnsafeTemplate> {
        let rest = self.rest();
        let mut end = 0;
        for line in rest.split_inclusive(|byte| *byte == b'\n') {
            if document.ends_at(line) {
                break;
            }
            end += line.len();
        }
        let body = &rest[..end];
        if document.quoted {
            let starts = (0..body.len()).map(|at| &body[at..]);
            if starts.into_iter().any(|text| Placeholder::at(text).is_some()) {
                return Err(UnsafeTemplate::HereDocument);
            }
            self.copy(end);
            return Ok(());
        }
        let mut lexer = Lexer::new(body, Frame::Body);
        while lexer.at < body.len() {
            lexer.step()?;
        }
        self.script.extend(lexer.script);
        for found in lexer.used {
            if !self.used.contains(&found) {
                self.used.push(found);
            }
        }
        self.at += end;
        Ok(())
    }
}

impl HereDocument {
    fn ends_at(&self, line: &[u8]) -> bool {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let tabs = line.iter().take_while(|byte| self.tabs && **byte == b'\t').count();
        line[tabs..] == self.delimiter
    }
}

/// Reads the name and operator of `${name...}`. Returns their length, and whether a word
/// follows. Without a known operator, what follows may be arithmetic.
fn parameter(text: &[u8]) -> (usize, bool) {
    let special = text.first().is_some_and(|byte| b"@*#?$!-".contains(byte));
    let name = text.iter().take_while(|byte| is_name(**byte)).count();
    let name = if name == 0 { usize::from(special) } else { name };
    let colon = usize::from(text.get(name) == Some(&b':'));
    let operator = text.get(name + colon);
    let word = match operator {
        Some(b'-' | b'=' | b'?' | b'+') => true,
        Some(b'#' | b'%' | b'/') => colon == 0,
        _ => false,
    };
    if word { (name + colon + 1, true) } else { (name, false) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn script(template: &str) -> String {
        String::from_utf8(compile(template.as_bytes()).unwrap().0).unwrap()
    }

    #[test]
    fn reference_fits_the_quotes_around_it() {
        for (template, wanted) in [
            ("echo {}", "echo \"${REQUEUE_KEY}\""),
            ("echo \"a {}\"", "echo \"a ${REQUEUE_KEY}\""),
            ("echo 'a {}'", "echo 'a '\"${REQUEUE_KEY}\"''"),
            ("echo \"$(echo '{}')\"", "echo \"$(echo ''\"${REQUEUE_KEY}\"'')\""),
            ("echo `echo {}`", "echo `echo \"${REQUEUE_KEY}\"`"),
            (
                "cat <<E\n\"{}\"\nE\necho {}",
                "cat <<E\n\"${REQUEUE_KEY}\"\nE\necho \"${REQUEUE_KEY}\"",
            ),
            ("echo \\{} # {}", "echo \\{} # {}"),
            ("echo ${} {.}", "echo ${} \"${REQUEUE_KEY_STEM}\""),
            ("echo $((1 + 1)) {#}", "echo $((1 + 1)) \"${REQUEUE_RUN}\""),
            ("echo $#{} a#{}", "echo $#\"${REQUEUE_KEY}\" a#\"${REQUEUE_KEY}\""),
        ] {
            assert_eq!(script(template), wanted, "{template}");
        }
    }

    /// Both shells that systems use as `/bin/sh` print the key unchanged.
    #[test]
    fn common_shells_agree() {
        let key = "a  b'\"$(x)`y`\\*\nz";
        for template in [
            "printf %s {}",
            "printf %s \"{}\"",
            "printf %s '{}'",
            "printf %s \"${no:-{}}\"",
            "printf %s \"$(printf %s '{}')\"",
            "printf %s \"`printf %s \"{}\"`\"",
            "printf %s \"$(case x in y) ;; x) printf %s {};; esac)\"",
        ] {
            for shell in ["sh", "bash"] {
                let ran = Command::new(shell)
                    .args(["-c", &script(template)])
                    .env("REQUEUE_KEY", key)
                    .output()
                    .unwrap();
                let out = String::from_utf8(ran.stdout).unwrap();
                assert_eq!(out, key, "{shell}: {template}");
            }
        }
    }

    #[test]
    fn placeholders_are_listed_once() {
        let (_, used) = compile(b"echo {} '{}' {//}").unwrap();
        assert_eq!(used, [Placeholder::Key, Placeholder::Dir]);
    }
}
