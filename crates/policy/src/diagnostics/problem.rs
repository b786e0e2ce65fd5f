//! What is wrong with a text that a person wrote, and what to write instead.
//!
//! One shape for the policy, its lists and the configuration. It does not know YAML: a place is a file, a line and
//! a column, wherever they come from.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::nearest::nearest;
use super::snippet::{self, ColourMode};
use crate::model::rule_id::RuleId;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLocation {
    /// The file's name as it is shown.
    pub file: Arc<str>,
    /// The line, from 1; 0 for the file as a whole.
    pub line: u32,
    /// The column in characters, from 1; 0 for the line as a whole.
    pub column: u32,
}

impl SourceLocation {
    /// The file as a whole.
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
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The text is refused.
    Error,
    /// The text is accepted, and probably does not do what its author wants; `--strict` refuses it.
    Warning,
    /// The text is fine and could be better; nothing refuses it.
    Advice,
}

impl Severity {
    /// The word of `check`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Advice => "advice",
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub location: SourceLocation,
    /// The rule it is in: its id, or its position.
    pub rule: Option<RuleId>,
    /// What is wrong, in a sentence without a full stop.
    pub message: String,
    /// The offending text.
    pub found: Option<String>,
    /// What to write instead: `allowed: a, b`, or advice.
    pub help: Option<String>,
    /// The word that was probably meant.
    pub suggestion: Option<String>,
    /// How many characters behind the beginning of the scalar at [`Self::location`] it is; for patterns.
    pub scalar_offset: Option<usize>,
    /// The line it is in, once a [`super::problems::Problems`] that knows the text has it.
    pub excerpt: Option<Excerpt>,
}

/// The source line of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, or the part of a long one around the place.
    pub text: String,
    /// How many characters stand before the place.
    pub offset: usize,
    /// How many characters the place covers, at least one, also where the line is cut.
    pub width: usize,
}

impl Problem {
    /// An error.
    pub fn error(place: &SourceLocation, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, place, message)
    }

    /// A warning.
    pub fn warning(place: &SourceLocation, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, place, message)
    }

    /// Advice.
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

    /// Adds what to write instead.
    #[must_use]
    pub fn with_help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Adds the words that are allowed, and the one nearest to what was found.
    #[must_use]
    pub fn with_allowed_words<'w>(mut self, words: impl IntoIterator<Item = &'w str>) -> Self {
        let words: Vec<&str> = words.into_iter().collect();
        let given = self.found.as_deref().unwrap_or("");
        self.suggestion = nearest(given, words.iter().copied()).map(Into::into);
        self.help = Some(format!("allowed: {}", words.join(", ")));
        self
    }

    /// Adds the nearest of some words without listing them all.
    #[must_use]
    pub fn with_suggestion_from<'w>(mut self, words: impl IntoIterator<Item = &'w str>) -> Self {
        self.suggestion = nearest(self.found.as_deref().unwrap_or(""), words).map(Into::into);
        self
    }

    /// Adds how many characters behind the beginning of the scalar it is.
    #[must_use]
    pub fn with_scalar_offset(mut self, characters: usize) -> Self {
        self.scalar_offset = Some(characters);
        self
    }

    /// Adds the rule.
    #[must_use]
    pub fn with_rule(mut self, rule: Option<&RuleId>) -> Self {
        self.rule = rule.cloned();
        self
    }

    /// What is wrong and where, in one line, without what to write instead.
    pub(super) fn headline(&self) -> String {
        let mut line = format!("{}: {}: ", self.location, self.severity.as_str());
        if let Some(rule) = &self.rule {
            line.push_str(&format!("rule {rule}: "));
        }
        line.push_str(&to_printable(&self.message, usize::MAX));
        if let Some(found) = &self.found {
            line.push_str(&format!("; found `{}`", to_printable(found, 80)));
        }
        line
    }

    /// The problem as [`super::snippet`] shows it, without colours.
    pub fn render(&self) -> String {
        snippet::render(self, ColourMode::Plain)
    }

    /// Whether the text is refused for it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The column behind the last character that is meant, in the same line; none for a line or a file as a whole.
    fn end_column(&self) -> Option<usize> {
        let column = (self.location.column as usize).checked_sub(1)?;
        Some(column + 1 + self.excerpt.as_ref().map_or(0, |excerpt| excerpt.width))
    }

    /// The form of `check --format json`; what is not there is `null`.
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
        f.write_str(&self.headline())?;
        if let Some(help) = &self.help {
            write!(f, "; {}", to_printable(help, usize::MAX))?;
        }
        if let Some(near) = &self.suggestion {
            write!(f, "; did you mean `{near}`?")?;
        }
        Ok(())
    }
}

/// The text with control characters escaped, so that a policy cannot write to a terminal, and not too long.
pub(super) fn to_printable(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.chars().enumerate() {
        if at == most {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
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
    fn one_line_says_it_all() {
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
