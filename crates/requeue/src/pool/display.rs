//! An error of the user's that can be formatted without a panic.

use std::fmt::{self, Display, Write};

use crate::contain::contain;

/// Contains panics of `Display`, where the value is formatted.
#[derive(Debug, PartialEq)]
pub(super) struct ContainedDisplay<T>(pub(super) T);

impl<T> ContainedDisplay<T> {
    pub(super) fn get(&self) -> &T {
        &self.0
    }
}

impl<T: Display> Display for ContainedDisplay<T> {
    /// Formats into a string first: nothing half-written and no error of `Display` reaches
    /// the caller, and `to_string` panics on such an error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alternate = f.alternate();
        let text = contain(|| {
            let (mut text, value) = (String::new(), &self.0);
            let written = if alternate {
                write!(text, "{value:#}")
            } else {
                write!(text, "{value}")
            };
            written.ok().map(|()| text)
        });
        f.write_str(text.flatten().as_deref().unwrap_or("the error cannot be displayed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text(fn(&mut fmt::Formatter<'_>) -> fmt::Result);

    impl Display for Text {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.0)(f)
        }
    }

    #[test]
    fn text_and_its_alternate_form_are_those_of_the_value() {
        let form = |f: &mut fmt::Formatter<'_>| {
            f.write_str(if f.alternate() { "long" } else { "short" })
        };
        let text = ContainedDisplay(Text(form));
        assert_eq!(format!("{text} {text:#}"), "short long");
    }

    #[test]
    fn display_that_fails_or_panics_is_replaced() {
        let fails = |f: &mut fmt::Formatter<'_>| f.write_str("half").and(Err(fmt::Error));
        let panics = |_: &mut fmt::Formatter<'_>| panic!("on purpose");
        for text in [Text(fails), Text(panics)] {
            let text = ContainedDisplay(text).to_string();
            assert_eq!(text, "the error cannot be displayed");
        }
    }
}
