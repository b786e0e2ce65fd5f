//! Comparison with an expression as its own system does it, for evaluators.
//!
//! Backtracking, as most of these systems do; the syntax is rewritten text by text. It shares no code with the
//! translation of expressions.

mod automaton;
mod required;
mod rewrite;

use std::cell::OnceCell;

use fancy_regex::{Regex, RegexBuilder};

use crate::expression::{Anchoring, Dialect};
use automaton::Automaton;
use required::required_text;

/// The steps after which a comparison gives up.
const MAX_STEPS: usize = 200_000;

/// An expression in its original form.
pub struct OriginalExpression(Matcher);

enum Matcher {
    Regex(Box<DeferredRegex>),
    Automaton(Automaton),
}

/// An expression that is compiled again when a text may fit it. Of thousands, few ever meet such a text, and a compiled one
/// takes some 20 KiB.
struct DeferredRegex {
    pattern: String,
    ignore_case: bool,
    /// A text without which the expression does not fit; `None` if there is none, or if case is ignored.
    required: Option<String>,
    compiled: OnceCell<Regex>,
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
        let regex = DeferredRegex::new(anchored, ignore_case)?;
        Ok(Self(Matcher::Regex(Box::new(regex))))
    }

    /// Returns `true` if the text fits; `None` if that takes too long.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        match &self.0 {
            Matcher::Regex(regex) => regex.is_match(text),
            Matcher::Automaton(automaton) => automaton.is_match(text),
        }
    }
}

impl DeferredRegex {
    fn new(pattern: String, ignore_case: bool) -> Result<Self, String> {
        let regex = build(&pattern, ignore_case)?;
        let required = required_text(&pattern).filter(|_| !ignore_case);
        let compiled = OnceCell::new();
        if required.is_none() {
            let _ = compiled.set(regex);
        }
        Ok(Self {
            pattern,
            ignore_case,
            required,
            compiled,
        })
    }

    fn is_match(&self, text: &str) -> Option<bool> {
        let lacks = |required: &String| !text.contains(required.as_str());
        if self.required.as_ref().is_some_and(lacks) {
            return Some(false);
        }
        if self.compiled.get().is_none() {
            // It was compiled once, so that this has no error.
            let _ = self
                .compiled
                .set(build(&self.pattern, self.ignore_case).ok()?);
        }
        self.compiled.get()?.is_match(text).ok()
    }
}

fn build(pattern: &str, ignore_case: bool) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .backtrack_limit(MAX_STEPS)
        .build()
        .map_err(|error| error.to_string())
}
