//! Workflow commands of GitHub Actions, which show messages beside the lines of a pull request.

use std::fmt;

/// The level of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnotationLevel {
    Error,
    Warning,
    Notice,
}

/// A message at a file or a line of it; its text is one line of a workflow's output.
#[derive(Clone, Debug)]
pub(super) struct Annotation<'a> {
    pub(super) level: AnnotationLevel,
    pub(super) file: &'a str,
    /// The line and column, from 1; 0 means the whole file or line.
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) title: &'a str,
    pub(super) message: &'a str,
}

impl fmt::Display for Annotation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            AnnotationLevel::Error => "error",
            AnnotationLevel::Warning => "warning",
            AnnotationLevel::Notice => "notice",
        };
        write!(f, "::{level} file={}", escape_property(self.file))?;
        for (name, number) in [("line", self.line), ("col", self.column)] {
            if number > 0 {
                write!(f, ",{name}={number}")?;
            }
        }
        write!(
            f,
            ",title={}::{}",
            escape_property(self.title),
            escape_data(self.message)
        )
    }
}

/// Escapes the message of a workflow command.
fn escape_data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_ends_no_property() {
        let annotation = Annotation {
            level: AnnotationLevel::Error,
            file: "a,b.yaml",
            line: 3,
            column: 0,
            title: "x: y",
            message: "100 %\n::error::forged",
        };
        assert_eq!(
            annotation.to_string(),
            "::error file=a%2Cb.yaml,line=3,title=x%3A y::100 %25%0A::error::forged"
        );
    }
}
