//! Regular expressions of other systems as conditions of a policy.

use crate::draft::Condition;
use crate::report::AssumptionEffect;

/// The syntax in which an expression is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `java.util.regex`.
    Java,
    DotNet,
    /// Python's `re`.
    Python,
    JavaScript,
    /// POSIX extended expressions, with the escapes of GNU.
    Posix,
    Pcre,
    /// Brics automata, which Nutch uses: always whole, no `\d`, and `@ & ~ # < >` are operators.
    Automaton,
}

/// How an expression is compared with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchoring {
    /// It fits the whole text.
    Whole,
    /// It fits from the beginning, as Python's `match`.
    Start,
    /// It fits somewhere.
    Search,
}

/// An expression as the source has it.
#[derive(Clone, Copy, Debug)]
pub struct SourceExpression<'a> {
    pub text: &'a str,
    pub dialect: Dialect,
    pub anchoring: Anchoring,
    pub ignore_case: bool,
}

/// An expression as a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedExpression {
    pub condition: Condition,
    /// What it assumes, and the effect if that is wrong.
    pub assumption: Option<(String, AssumptionEffect)>,
}

impl SourceExpression<'_> {
    /// Translates the expression into a condition on a field (`url`, `path`, `host` …).
    ///
    /// The error says why it cannot be translated, for the report.
    pub fn translate(&self, field: &str) -> Result<TranslatedExpression, String> {
        let regex = match self.anchoring {
            Anchoring::Whole => format!("^(?:{})$", self.text),
            Anchoring::Start => format!("^(?:{})", self.text),
            Anchoring::Search => self.text.to_owned(),
        };
        regex_syntax::Parser::new()
            .parse(&regex)
            .map_err(|error| error.to_string())?;
        Ok(TranslatedExpression {
            condition: Condition::test(field, "regex", [regex]).ignoring_case(self.ignore_case),
            assumption: None,
        })
    }
}
