//! A problem in a text that the user wrote, with its location and a suggestion for the fix.
//!
//! The policy, its lists and the configuration share this type. It is independent of YAML: a
//! location is a file, a line and a column.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::nearest::nearest;
use super::snippet::{self, ColourMode};
use crate::model::rule_id::RuleId;

/// A location in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLocation {
    /// The file name as displayed to the user.
    pub file: Arc<str>,
    /// The line, from 1; 0 means the whole file.
    pub line: u32,
    /// The column in characters, from 1; 0 means the whole line.
    pub column: u32,
}

impl SourceLocation {
    /// Returns the location that means the whole file.
    pub fn for_file(file: &Arc<str>) -> Self {
        Self {
            file: Arc::clone(file),
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_printable(&self.file, usize::MAX))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The text is rejected.
    Error,
    /// The text is accepted, but probably does not do what its author intended; `--strict` rejects
    /// it.
    Warning,
    /// The text is correct but could be improved; nothing rejects it.
    Advice,
}

impl Severity {
    /// Returns the word that `check` prints.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Advice => "advice",
        }
    }
}

/// A problem in a policy, a list or the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    pub location: SourceLocation,
    /// The rule that contains the problem: its id, or its position.
    pub rule: Option<RuleId>,
    /// The problem in one sentence, without a full stop.
    pub message: String,
    /// The offending text.
    pub found: Option<String>,
    /// The fix: `allowed: a, b`, or advice.
    pub help: Option<String>,
    /// The word that the author probably meant.
    pub suggestion: Option<String>,
    /// For patterns: the offset of the problem within the scalar at [`Self::location`], in
    /// characters.
    pub scalar_offset: Option<usize>,
    /// The source line, added by a [`super::problems::Problems`] that has the text.
    pub excerpt: Option<Excerpt>,
}

/// The source line of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, or the part of a long line around the location.
    pub text: String,
    /// The number of characters before the location.
    pub offset: usize,
    /// The number of characters that the location covers. At least one, even if the line is cut.
    pub width: usize,
}

impl Problem {
    pub fn error(place: &SourceLocation, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, place, message)
    }

    pub fn warning(place: &SourceLocation, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, place, message)
    }

    pub fn advice(place: &SourceLocation, message: impl Into<String>) -> Self {
        Self::new(Severity::Advice, place, message)
    }

    fn new(severity: Severity, place: &SourceLocation, message: impl Into<String>) -> Self {
        Self {
            severity,
            location: place.clone(),
            rule: None,
            message: message.into(),
            found: None,
            help: None,
            suggestion: None,
            scalar_offset: None,
            excerpt: None,
        }
    }

    /// Adds the offending text.
    #[must_use]
    pub fn with_found(mut self, text: impl Into<String>) -> Self {
        self.found = Some(text.into());
        self
    }

    /// Adds the fix.
    #[must_use]
    pub fn with_help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Adds the allowed words, and suggests the one nearest to the offending text.
    #[must_use]
    pub fn with_allowed_words<'w>(mut self, words: impl IntoIterator<Item = &'w str>) -> Self {
        let words: Vec<&str> = words.into_iter().collect();
        let found = self.found.as_deref().unwrap_or("");
        self.suggestion = nearest(found, words.iter().copied()).map(Into::into);
        self.help = Some(format!("allowed: {}", words.join(", ")));
        self
    }

    /// Suggests the nearest of these words without listing them.
    #[must_use]
    pub fn with_suggestion_from<'w>(mut self, words: impl IntoIterator<Item = &'w str>) -> Self {
        self.suggestion = nearest(self.found.as_deref().unwrap_or(""), words).map(Into::into);
        self
    }

    #[must_use]
    pub fn with_rule(mut self, rule: Option<&RuleId>) -> Self {
        self.rule = rule.cloned();
        self
    }

    /// Returns the location and the message in one line, without the fix.
    pub(super) fn headline(&self) -> String {
        let severity = self.severity.as_str();
        format!("{}: {severity}: {}", self.location, self.statement())
    }

    /// Returns the problem and its fix in one line, without the location.
    pub fn describe(&self) -> String {
        let mut line = self.statement();
        if let Some(help) = &self.help {
            line.push_str(&format!("; {}", to_printable(help, usize::MAX)));
        }
        if let Some(suggestion) = &self.suggestion {
            line.push_str(&format!("; did you mean `{suggestion}`?"));
        }
        line
    }

    fn statement(&self) -> String {
        let mut line = match &self.rule {
            Some(rule) => format!("rule {rule}: "),
            None => String::new(),
        };
        line.push_str(&to_printable(&self.message, usize::MAX));
        if let Some(found) = &self.found {
            line.push_str(&format!("; found `{}`", to_printable(found, 80)));
        }
        line
    }

    /// Formats the problem with its source line, without colours.
    pub fn render(&self) -> String {
        snippet::render(self, ColourMode::Plain)
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns the column after the last covered character; `None` if the location is a whole line
    /// or file.
    fn end_column(&self) -> Option<usize> {
        let column = (self.location.column as usize).checked_sub(1)?;
        Some(column + 1 + self.excerpt.as_ref().map_or(0, |excerpt| excerpt.width))
    }

    /// Returns the object of `check --format json`; missing values are `null`.
    pub fn to_json(&self) -> Json {
        json!({
            "severity": self.severity.as_str(),
            "file": &*self.location.file,
            "line": self.location.line,
            "column": self.location.column,
            "end": self.end_column(),
            "rule": self.rule.as_ref().map(RuleId::as_str),
            "message": self.message,
            "found": self.found,
            "help": self.help,
            "near": self.suggestion,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = self.severity.as_str();
        write!(f, "{}: {severity}: {}", self.location, self.describe())
    }
}

/// Escapes control characters, so that a policy cannot send escape sequences to a terminal, and
/// cuts the text after `most` characters.
pub(super) fn to_printable(text: &str, most: usize) -> String {
    let mut printable = String::with_capacity(text.len());
    for (at, c) in text.chars().enumerate() {
        if at == most {
            printable.push('…');
            break;
        }
        if c.is_control() {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> SourceLocation {
        SourceLocation {
            file: "p.yaml".into(),
            line: 3,
            column: 7,
        }
    }

    #[test]
    fn one_line_contains_the_place_and_the_message() {
        let problem = Problem::error(&place(), "unknown key")
            .with_found("forbidd")
            .with_allowed_words(["forbid", "require"])
            .with_rule(RuleId::new("no-cgi").as_ref());
        let line = "p.yaml:3:7: error: rule no-cgi: unknown key; found `forbidd`; \
                    allowed: forbid, require; did you mean `forbid`?";
        assert_eq!(problem.to_string(), line);
        assert_eq!(problem.to_json()["near"], "forbid");
        assert_eq!(SourceLocation::for_file(&"a".into()).to_string(), "a");
    }

    #[test]
    fn nothing_reaches_a_terminal_unescaped() {
        let problem = Problem::warning(&place(), "odd").with_found("\u{1b}[31m\nx");
        assert_eq!(
            problem.to_string(),
            "p.yaml:3:7: warning: odd; found `\\u{1b}[31m\\nx`"
        );
        let long = Problem::advice(&place(), "long").with_found("x".repeat(100));
        assert!(long.to_string().ends_with("x…`"));
    }
}
