//! Regular expressions that are compiled when they are first needed.
//!
//! Most expressions of a large policy never meet a URL that could match them. An expression is
//! validated when the policy is loaded. Its automaton takes ten times as long and some 10 KiB, and
//! is built only for a text to compare.
//!
//! A request must not wait for a large automaton: an expression whose automaton may have more than
//! `MAX_DEFERRED_STATES` states is compiled when the policy is loaded, which also applies the limit
//! of its memory. Nor must it wait for many: see `prepare`.

pub(crate) mod prepare;
pub(crate) mod table;

use std::fmt;
use std::sync::{Arc, OnceLock};

use regex_automata::meta::{self, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

use super::literals::RequiredLiterals;
use super::pattern::CaseSensitivity;

/// The maximum memory of the automaton of one expression, in bytes.
pub(crate) const SIZE_LIMIT: usize = 2 << 20;
/// The maximum nesting depth of an expression.
pub(crate) const NEST_LIMIT: u32 = 64;
/// The states of the largest automaton that is built when it is first needed. On real and made-up
/// expressions with as many states this took at most 0.9 ms and 160 KiB, 0.06 ms and 9 KiB on
/// average.
const MAX_DEFERRED_STATES: usize = 2_000;
/// The comparisons up to which a text is searched for the literals of an expression that is not
/// compiled. Beyond them its automaton costs less.
const MAX_LITERAL_COMPARISONS: usize = 4_096;
/// The maximum memory that matching takes for one expression on one thread, in bytes. States of the
/// automaton that do not fit are computed again.
const MATCH_CACHE_LIMIT: usize = 256 << 10;

/// A valid regular expression, not anchored. Clones share the automaton.
#[derive(Clone)]
pub struct Expression(Arc<ExpressionParts>);

struct ExpressionParts {
    pattern: Arc<str>,
    case: CaseSensitivity,
    /// The automaton; empty until it is needed.
    compiled: OnceLock<Regex>,
    /// Texts of which one occurs in every text that matches.
    literals: Option<RequiredLiterals>,
}

/// The reason why an expression is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpressionError {
    /// The library's description.
    Syntax(String),
    /// The automaton takes more than [`SIZE_LIMIT`].
    TooLarge,
}

impl Expression {
    /// Validates an expression.
    pub(crate) fn new(pattern: &str, case: CaseSensitivity) -> Result<Self, ExpressionError> {
        let tree = parse(pattern, case)?;
        let compiled = OnceLock::new();
        if count_states(&tree) > MAX_DEFERRED_STATES {
            let _ = compiled.set(build(&tree)?);
        }
        Ok(Self(Arc::new(ExpressionParts {
            pattern: pattern.into(),
            case,
            compiled,
            literals: RequiredLiterals::of_tree(&tree),
        })))
    }

    /// Returns `true` if the expression matches any part of the text.
    pub fn is_match(&self, text: &str) -> bool {
        if !self.is_compiled() && self.lacks_literals(text) {
            return false;
        }
        self.regex().is_some_and(|regex| regex.is_match(text))
    }

    /// Returns `true` if the text has none of the literals, so that the expression need not be
    /// compiled for it. An evaluation of every rule of a policy, as for its cases, would compile all.
    fn lacks_literals(&self, text: &str) -> bool {
        let has = |literal: &str| {
            let mut parts = text.as_bytes().windows(literal.len());
            parts.any(|part| part.eq_ignore_ascii_case(literal.as_bytes()))
        };
        self.required_literals().is_some_and(|literals| {
            let comparisons = text.len().saturating_mul(literals.iter().len());
            comparisons <= MAX_LITERAL_COMPARISONS && text.is_ascii() && !literals.iter().any(has)
        })
    }

    /// The expression as text. It does not include the case sensitivity.
    pub fn as_str(&self) -> &str {
        &self.0.pattern
    }

    /// Texts of which one occurs in every text that matches; `None` if there are none.
    pub(crate) fn required_literals(&self) -> Option<&RequiredLiterals> {
        self.0.literals.as_ref()
    }

    /// Compiles the expression if it is not compiled yet, so that its first use need not.
    pub fn prepare(&self) {
        self.regex();
    }

    /// Returns `true` if the expression is compiled.
    pub fn is_compiled(&self) -> bool {
        self.0.compiled.get().is_some()
    }

    /// Returns `true` if both share one automaton.
    pub fn shares_automaton_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the automaton. It is never `None`, since [`Self::new`] has found no error and a deferred
    /// automaton is far smaller than the limit.
    ///
    /// Threads that need it at the same time each compile it, and the first one's is kept: none waits
    /// for another.
    fn regex(&self) -> Option<&Regex> {
        let parts = &*self.0;
        if let Some(regex) = parts.compiled.get() {
            return Some(regex);
        }
        let tree = parse(&parts.pattern, parts.case).ok()?;
        let _ = parts.compiled.set(build(&tree).ok()?);
        parts.compiled.get()
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.as_str()).finish()
    }
}

fn parse(pattern: &str, case: CaseSensitivity) -> Result<Hir, ExpressionError> {
    ParserBuilder::new()
        .nest_limit(NEST_LIMIT)
        .case_insensitive(case == CaseSensitivity::Insensitive)
        .build()
        .parse(pattern)
        .map_err(|error| ExpressionError::Syntax(error.to_string()))
}

/// Builds an automaton that only finds whether a text matches, which takes half the memory of one
/// that finds groups.
fn build(tree: &Hir) -> Result<Regex, ExpressionError> {
    let config = meta::Config::new()
        .nfa_size_limit(Some(SIZE_LIMIT))
        .which_captures(WhichCaptures::None)
        .onepass(false)
        .dfa(false)
        .hybrid_cache_capacity(MATCH_CACHE_LIMIT);
    meta::Builder::new()
        .configure(config)
        .build_from_hir(tree)
        .map_err(|error| match error.size_limit() {
            Some(_) => ExpressionError::TooLarge,
            None => ExpressionError::Syntax(error.to_string()),
        })
}

/// Returns an upper bound of the states of the automaton.
fn count_states(tree: &Hir) -> usize {
    match tree.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Class(Class::Unicode(class)) => class.ranges().iter().map(range_states).sum(),
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min).max(1);
            let copies = usize::try_from(copies).unwrap_or(usize::MAX);
            count_states(&repetition.sub)
                .saturating_add(1)
                .saturating_mul(copies)
        }
        HirKind::Capture(capture) => count_states(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts
            .iter()
            .map(|part| count_states(part).saturating_add(1))
            .fold(0, usize::saturating_add),
    }
}

/// Returns an upper bound of the states of a range of characters in UTF-8.
fn range_states(range: &ClassUnicodeRange) -> usize {
    Utf8Sequences::new(range.start(), range.end())
        .map(|sequence| sequence.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(pattern: &str, case: CaseSensitivity) -> Expression {
        Expression::new(pattern, case).unwrap()
    }

    #[test]
    fn an_expression_is_compiled_when_it_is_first_needed() {
        let short = expression("^/a+$", CaseSensitivity::Insensitive);
        let clone = short.clone();
        assert!(!short.is_compiled());
        assert!(clone.is_match("/AA") && !clone.is_match("/b"));
        assert!(short.is_compiled() && short.shares_automaton_with(&clone));
    }

    #[test]
    fn a_text_without_the_literals_needs_no_automaton() {
        let calendar = expression("^/calendar/[0-9]+$", CaseSensitivity::Insensitive);
        assert!(!calendar.is_match("/other/1") && !calendar.is_match(""));
        assert!(!calendar.is_compiled());
        assert!(calendar.is_match("/CALENDAR/1") && calendar.is_compiled());
        // Beyond ASCII a text may match without them.
        let kelvin = expression("^kelvin$", CaseSensitivity::Insensitive);
        assert!(kelvin.is_match("\u{212a}elvin"));
    }

    #[test]
    fn a_large_expression_is_compiled_when_it_is_loaded() {
        let words: Vec<String> = (0..1_000).map(|number| format!("word{number}")).collect();
        for pattern in [
            words.join("|"),
            r"\w{20}".to_owned(),
            "(?:[a-z]{10}/){200}".to_owned(),
            r"(?i)\pL+x\pL+".to_owned(),
        ] {
            assert!(
                expression(&pattern, CaseSensitivity::Sensitive).is_compiled(),
                "{pattern}"
            );
        }
    }

    /// Memory is measured in place of time: it does not depend on the machine.
    #[test]
    fn the_first_use_is_bounded() {
        let parts = [
            "[a-z]",
            "[^/]",
            ".",
            r"\w",
            r"\d",
            r"\pL",
            r"\p{Greek}",
            "(?:ab|cd|e)",
            "é",
            "(?:x+/)?",
            r"\bw",
            "(?-u:[0-9])",
        ];
        let mut deferred = 0;
        for part in parts {
            for count in [1, 2, 3, 7, 20, 50, 130, 400, 999, 1_999] {
                for pattern in [
                    format!("^{part}{{{count}}}$"),
                    format!("x{part}{{1,{count}}}y"),
                    format!("(?:{part}|{part}z){{{count},}}"),
                ] {
                    for case in [CaseSensitivity::Sensitive, CaseSensitivity::Insensitive] {
                        deferred += usize::from(is_deferred_and_small(&pattern, case));
                    }
                }
            }
        }
        assert!(deferred > 200, "{deferred}");
    }

    /// Returns `true` if the first use compiles the expression, which must not take much memory.
    fn is_deferred_and_small(pattern: &str, case: CaseSensitivity) -> bool {
        let Ok(found) = Expression::new(pattern, case) else {
            return false;
        };
        let is_deferred = !found.is_compiled();
        let size = found.regex().unwrap().memory_usage();
        assert!(!is_deferred || size < 512 << 10, "{pattern}: {size}");
        is_deferred
    }

    #[test]
    fn invalid_expressions_have_a_reason() {
        let new = |pattern: &str| Expression::new(pattern, CaseSensitivity::Sensitive).unwrap_err();
        assert_eq!(new(r"\w{1000}\w{1000}"), ExpressionError::TooLarge);
        assert!(matches!(new("a(b"), ExpressionError::Syntax(text) if text.contains("unclosed")));
    }
}
