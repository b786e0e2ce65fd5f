//! Comparison with an expression as its own system does it, for evaluators.
//!
//! Backtracking, as most of these systems do; the syntax is rewritten text by text. It shares no code with the
//! translation of expressions.

mod automaton;
mod rewrite;

use fancy_regex::{Regex, RegexBuilder};

use crate::expression::{Anchoring, Dialect};
use automaton::Automaton;

/// The steps after which a comparison gives up.
const MAX_STEPS: usize = 200_000;

/// An expression in its original form.
pub struct OriginalExpression(Matcher);

enum Matcher {
    Regex(Box<Regex>),
    Automaton(Automaton),
}

impl OriginalExpression {
    /// Compiles an expression. The error says why it cannot be.
    pub fn new(
        text: &str,
        dialect: Dialect,
        anchoring: Anchoring,
        ignore_case: bool,
    ) -> Result<Self, String> {
        if dialect == Dialect::Automaton {
            return Automaton::new(text).map(|it| Self(Matcher::Automaton(it)));
        }
        let text = rewrite::to_fancy(text, dialect)?;
        let anchored = match anchoring {
            Anchoring::Whole => format!("\\A(?:{text})\\z"),
            Anchoring::Start => format!("\\A(?:{text})"),
            Anchoring::Search => text,
        };
        let regex = RegexBuilder::new(&anchored)
            .case_insensitive(ignore_case)
            .backtrack_limit(MAX_STEPS)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self(Matcher::Regex(Box::new(regex))))
    }

    /// Returns `true` if the text fits; `None` if that takes too long.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        match &self.0 {
            Matcher::Regex(regex) => regex.is_match(text).ok(),
            Matcher::Automaton(automaton) => automaton.is_match(text),
        }
    }
}
