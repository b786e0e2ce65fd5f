//! An index of the values of a text test, so that its time does not grow with their number.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::nfa::contiguous;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, Anchored};
use smallvec::SmallVec;

use crate::policy::expression::Expression;
use crate::policy::list::texts::{PackedTexts, SortedTexts, TextSet};

use super::{CaseSensitivity, LiteralTestKind, TextKind, to_surt};

/// The number of texts up to which comparing them one by one is about as fast.
const MAX_UNINDEXED_TEXTS: usize = 8;

/// The number of expressions up to which it is, each of which takes longer to try.
const MAX_UNINDEXED_EXPRESSIONS: usize = 3;

/// The values of a text test, arranged for the comparison of its kind. In tests that ignore case
/// they are in lower case.
pub(super) enum ValueIndex {
    Exact(TextSet),
    Domain(TextSet),
    Prefix(SortedTexts),
    Surt(SortedTexts),
    Under(DirectoryIndex),
    Contains(AhoCorasick),
    Suffix(SuffixIndex),
    Ext(SuffixIndex),
    Regex(ExpressionIndex),
}

impl ValueIndex {
    /// Creates the index of a test with many values. Returns `None` for few values, and for values
    /// that are too large for an index.
    pub(super) fn new(kind: &TextKind, case: CaseSensitivity) -> Option<Self> {
        match kind {
            TextKind::Literal(kind, values) if values.len() > MAX_UNINDEXED_TEXTS => {
                Self::of_texts(*kind, values, case)
            }
            TextKind::Regex(regexes) if regexes.len() > MAX_UNINDEXED_EXPRESSIONS => {
                ExpressionIndex::new(regexes).map(Self::Regex)
            }
            TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..) => None,
        }
    }

    fn of_texts(kind: LiteralTestKind, values: &[Box<str>], case: CaseSensitivity) -> Option<Self> {
        let verbatim = CaseSensitivity::Sensitive;
        Some(match kind {
            LiteralTestKind::Exact => Self::Exact(TextSet::new(pack(values, case)?)),
            LiteralTestKind::Domain => Self::Domain(TextSet::new(pack(values, verbatim)?)),
            LiteralTestKind::Prefix => Self::Prefix(SortedTexts::new(&pack(values, case)?)),
            LiteralTestKind::Surt => Self::Surt(SortedTexts::new(&pack(values, verbatim)?)),
            LiteralTestKind::Under => Self::Under(DirectoryIndex::new(values, case)?),
            LiteralTestKind::Contains => {
                let values = values.iter().map(|value| value.as_bytes());
                Self::Contains(search_automaton(values, case)?)
            }
            LiteralTestKind::Suffix => {
                let reversed = values.iter().map(|value| value.bytes().rev().collect());
                Self::Suffix(SuffixIndex::new(reversed, case)?)
            }
            LiteralTestKind::Ext => {
                let reversed = values
                    .iter()
                    .map(|value| value.bytes().rev().chain([b'.']).collect());
                Self::Ext(SuffixIndex::new(reversed, CaseSensitivity::Insensitive)?)
            }
        })
    }

    /// Returns `true` if the text passes the test whose values these are.
    pub(super) fn matches(&self, kind: &TextKind, case: CaseSensitivity, text: &str) -> bool {
        match self {
            Self::Exact(values) => values.contains(&folded(text, case)),
            Self::Domain(values) => values.has_parent_of(text),
            Self::Prefix(values) => values.has_prefix_of(&folded(text, case)),
            Self::Surt(values) => to_surt(text).is_some_and(|surt| values.has_prefix_of(&surt)),
            Self::Under(values) => values.has_parent_of(&folded(text, case)),
            Self::Contains(values) => values.is_match(text),
            Self::Suffix(values) | Self::Ext(values) => values.has_suffix_of(text),
            Self::Regex(index) => {
                let TextKind::Regex(regexes) = kind else {
                    return false;
                };
                index.any_matches(regexes, text)
            }
        }
    }

    /// The positions of the expressions that every ASCII text is compared with; `None` for tests
    /// without expressions.
    pub(super) fn unselective(&self) -> Option<&[usize]> {
        match self {
            Self::Regex(index) => Some(&index.others),
            Self::Exact(_)
            | Self::Domain(_)
            | Self::Prefix(_)
            | Self::Surt(_)
            | Self::Under(_)
            | Self::Contains(_)
            | Self::Suffix(_)
            | Self::Ext(_) => None,
        }
    }

    /// The values of a test of the beginning of a text.
    pub(super) fn prefixes(&self) -> Option<&SortedTexts> {
        match self {
            Self::Prefix(values) | Self::Surt(values) => Some(values),
            Self::Exact(_)
            | Self::Domain(_)
            | Self::Under(_)
            | Self::Contains(_)
            | Self::Suffix(_)
            | Self::Ext(_)
            | Self::Regex(_) => None,
        }
    }
}

impl fmt::Debug for ValueIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueIndex")
    }
}

fn pack(values: &[Box<str>], case: CaseSensitivity) -> Option<PackedTexts> {
    let mut texts = PackedTexts::default();
    values
        .iter()
        .all(|value| texts.push(&folded(value, case)))
        .then_some(texts)
}

/// Returns a text in lower case if a test ignores case.
pub(super) fn folded(text: &str, case: CaseSensitivity) -> Cow<'_, str> {
    match case {
        CaseSensitivity::Insensitive if text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            text.to_ascii_lowercase().into()
        }
        CaseSensitivity::Insensitive | CaseSensitivity::Sensitive => text.into(),
    }
}

/// Creates an automaton that searches for all values at once.
fn search_automaton<'t>(
    values: impl Iterator<Item = &'t [u8]>,
    case: CaseSensitivity,
) -> Option<AhoCorasick> {
    AhoCorasickBuilder::new()
        .ascii_case_insensitive(case == CaseSensitivity::Insensitive)
        // Its size is proportional to that of the values.
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .build(values)
        .ok()
}

/// Directories: a path is in one of them if it is the directory or continues it with a `/`.
pub(super) struct DirectoryIndex {
    directories: TextSet,
    /// The directories, each with a `/` at its end.
    beginnings: SortedTexts,
}

impl DirectoryIndex {
    fn new(values: &[Box<str>], case: CaseSensitivity) -> Option<Self> {
        let directories = pack(values, case)?;
        let mut beginnings = PackedTexts::default();
        let is_complete = directories
            .iter()
            .all(|directory| beginnings.push(&format!("{directory}/")));
        is_complete.then(|| Self {
            beginnings: SortedTexts::new(&beginnings),
            directories: TextSet::new(directories),
        })
    }

    fn has_parent_of(&self, path: &str) -> bool {
        self.beginnings.has_prefix_of(path) || self.directories.contains(path)
    }
}

/// Ends of texts: an automaton that reads a text from its end.
pub(super) struct SuffixIndex(contiguous::NFA);

impl SuffixIndex {
    /// Creates an index of values whose bytes are in reverse order.
    fn new(reversed: impl Iterator<Item = Vec<u8>>, case: CaseSensitivity) -> Option<Self> {
        contiguous::Builder::new()
            .ascii_case_insensitive(case == CaseSensitivity::Insensitive)
            .prefilter(false)
            .build(reversed)
            .ok()
            .map(Self)
    }

    fn has_suffix_of(&self, text: &str) -> bool {
        let Ok(mut state) = self.0.start_state(Anchored::Yes) else {
            return false;
        };
        let mut rest = text.bytes().rev();
        for length in 0.. {
            if self.has_value(state, length) {
                return true;
            }
            match rest.next() {
                Some(byte) if !self.0.is_dead(state) => {
                    state = self.0.next_state(Anchored::Yes, state, byte);
                }
                Some(_) | None => break,
            }
        }
        false
    }

    /// Returns `true` if a value of this length ends in a state. Shorter ones begin later in the
    /// text.
    fn has_value(&self, state: StateID, length: usize) -> bool {
        self.0.is_match(state)
            && (0..self.0.match_len(state))
                .any(|at| self.0.pattern_len(self.0.match_pattern(state, at)) == length)
    }
}

/// Regular expressions by their required literals: only those of which a text contains a literal
/// are tried.
pub(super) struct ExpressionIndex {
    literals: AhoCorasick,
    /// The expressions of each literal.
    by_literal: Box<[Box<[usize]>]>,
    /// The expressions without literals.
    others: Box<[usize]>,
}

impl ExpressionIndex {
    fn new(expressions: &[Expression]) -> Option<Self> {
        let mut by_literal = BTreeMap::<Box<str>, Vec<usize>>::new();
        let mut others = Vec::new();
        for (at, expression) in expressions.iter().enumerate() {
            match expression.required_literals() {
                None => others.push(at),
                Some(literals) => {
                    for literal in literals.iter() {
                        by_literal.entry(literal.into()).or_default().push(at);
                    }
                }
            }
        }
        let literals = by_literal.keys().map(|literal| literal.as_bytes());
        Some(Self {
            literals: search_automaton(literals, CaseSensitivity::Insensitive)?,
            by_literal: by_literal.into_values().map(Into::into).collect(),
            others: others.into(),
        })
    }

    fn any_matches(&self, expressions: &[Expression], text: &str) -> bool {
        // Literals say nothing about other texts.
        if !text.is_ascii() {
            return expressions
                .iter()
                .any(|expression| expression.is_match(text));
        }
        let is_match = |at: usize| {
            let expression = expressions.get(at);
            expression.is_some_and(|expression| expression.is_match(text))
        };
        let mut tried = BitSet::default();
        let has_candidate = self
            .literals
            .find_overlapping_iter(text)
            .filter_map(|found| self.by_literal.get(found.pattern().as_usize()))
            .flatten()
            .any(|at| tried.insert(*at) && is_match(*at));
        has_candidate || self.others.iter().any(|at| is_match(*at))
    }
}

/// A set of small numbers.
#[derive(Default)]
struct BitSet(SmallVec<[u64; 16]>);

impl BitSet {
    /// Adds a number. Returns `false` if the set contains it already.
    fn insert(&mut self, number: usize) -> bool {
        let word = number / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (number % 64);
        let is_new = self.0.get(word).is_some_and(|bits| bits & bit == 0);
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= bit;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pattern::{TextForm, TextTest};

    fn word(random: &mut fastrand::Rng, longest: usize) -> String {
        let parts = [
            "a", "b", "A", "/", ".", "é", "ab", "K", "\u{212a}", "://", ")", ",",
        ];
        (0..random.usize(0..=longest))
            .map(|_| *random.choice(&parts).unwrap())
            .collect()
    }

    fn expression(random: &mut fastrand::Rng) -> String {
        let mut text = String::new();
        for _ in 0..random.usize(1..6) {
            text += random
                .choice([
                    "abc", "k", ".*", "[ab]", "(ab|ba/)", "\\.", "é", "^", "$", "a?",
                ])
                .unwrap();
        }
        text
    }

    fn assert_equal(kind: TextKind, case: CaseSensitivity, random: &mut fastrand::Rng) -> [u32; 2] {
        let test = TextTest::new(kind, case, TextForm::Canonical);
        assert!(test.index.is_some());
        let mut results = [0, 0];
        for _ in 0..40 {
            let text = match random.u8(0..3) {
                0 => word(random, 12),
                1 => format!("http://{}/{}", word(random, 2), word(random, 3)),
                _ => word(random, 3),
            };
            let expected = test.kind.matches(&text, case);
            assert_eq!(test.matches(&text), expected, "{test:?} {text:?}");
            results[usize::from(expected)] += 1;
            let plain = TextTest {
                index: None,
                ..test.clone()
            };
            // Tests of `surt` do not ignore case.
            if case == CaseSensitivity::Sensitive
                || !matches!(plain.kind, TextKind::Literal(LiteralTestKind::Surt, _))
            {
                assert_eq!(test.has_prefix_of(&text), plain.has_prefix_of(&text));
                let may_pass = |test: &TextTest| {
                    test.has_prefix_of(&text) || test.has_value_starting_with(&text)
                };
                assert_eq!(may_pass(&test), may_pass(&plain), "{test:?} {text:?}");
            }
        }
        results
    }

    #[test]
    fn an_index_finds_what_one_comparison_after_the_other_finds() {
        let mut random = fastrand::Rng::with_seed(8);
        let cases = [CaseSensitivity::Sensitive, CaseSensitivity::Insensitive];
        for kind in LiteralTestKind::ALL {
            let mut results = [0, 0];
            for round in 0..400 {
                // An empty value makes some tests pass for all texts.
                let shortest = usize::from(round % 4 != 0);
                let values: Vec<Box<str>> = (0..random.usize(9..30))
                    .map(|_| word(&mut random, 4))
                    .filter(|value| value.len() >= shortest)
                    .map(Into::into)
                    .collect();
                if values.len() > MAX_UNINDEXED_TEXTS {
                    let kind = TextKind::Literal(kind, values.into());
                    let found = assert_equal(kind, cases[round % 2], &mut random);
                    results = [results[0] + found[0], results[1] + found[1]];
                }
            }
            assert!(results.iter().all(|count| *count > 100), "{results:?}");
        }
    }

    #[test]
    fn an_index_of_expressions_tries_all_that_can_match() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut results = [0, 0];
        for round in 0..300 {
            let case = [CaseSensitivity::Sensitive, CaseSensitivity::Insensitive][round % 2];
            let regexes: Vec<Expression> = (0..random.usize(4..14))
                .map(|_| {
                    // Most expressions need a literal, so that not all texts match.
                    let anchor = if random.u8(0..60) > 0 { "[Aa]bc" } else { "" };
                    let pattern = format!("{}{anchor}", expression(&mut random));
                    Expression::new(&pattern, case).unwrap()
                })
                .collect();
            let test = TextTest::new(TextKind::Regex(regexes.into()), case, TextForm::Canonical);
            for _ in 0..40 {
                let text: String = (0..random.usize(0..6))
                    .map(|_| {
                        *random
                            .choice(&["abc", "ABC", "k", "\u{212a}", "é", "ba/", "."])
                            .unwrap()
                    })
                    .collect();
                let expected = test.kind.matches(&text, case);
                assert_eq!(test.matches(&text), expected, "{test:?} {text:?}");
                results[usize::from(expected)] += 1;
            }
        }
        assert!(results.iter().all(|count| *count > 1_000), "{results:?}");
    }
}
