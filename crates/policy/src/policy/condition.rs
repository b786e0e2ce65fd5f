//! Conditions and their evaluation in three-valued logic: yes, no, unknown.

use std::sync::Arc;

use super::fact::{EvaluationTarget, Fact, Facts};
use super::field::{Field, ValueType};
use super::list::{ListItems, ListKind, PolicyList};
use super::pattern::{LiteralTestKind, Networks, Ranges, TextKind, TextTest, to_surt};
use super::rule::PolicyStage;
use crate::urls::target::HostTarget;

/// The value of a condition (Kleene's strong logic of indeterminacy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// True, whatever the value of unknown facts.
    Yes,
    /// False, whatever the value of unknown facts.
    No,
    /// Dependent on unknown facts.
    Unknown,
}

impl Truth {
    /// Returns the opposite; [`Unknown`](Self::Unknown) stays unknown.
    pub fn negate(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::Yes } else { Self::No }
    }
}

impl From<Fact<bool>> for Truth {
    fn from(fact: Fact<bool>) -> Self {
        match fact {
            Fact::Known(value) => value.into(),
            Fact::Unknown => Self::Unknown,
        }
    }
}

/// The asserted value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polarity {
    Yes,
    No,
}

impl Polarity {
    pub(crate) fn negate(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
        }
    }

    pub(crate) fn to_truth(self) -> Truth {
        match self {
            Self::Yes => Truth::Yes,
            Self::No => Truth::No,
        }
    }
}

/// The assertion that a condition has a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assertion<'p> {
    pub(crate) condition: &'p Condition,
    pub(crate) polarity: Polarity,
}

impl Assertion<'_> {
    pub(crate) fn evaluate(self, facts: &Facts<'_>, lists: &[PolicyList]) -> Truth {
        let value = self.condition.evaluate(facts, lists);
        match self.polarity {
            Polarity::Yes => value,
            Polarity::No => value.negate(),
        }
    }
}

/// A compiled condition.
#[derive(Clone, Debug)]
pub enum Condition {
    /// `always: true`, or a mapping without keys.
    Always,
    /// All parts must hold. The keys of a mapping are such parts, too.
    All(Box<[Condition]>),
    /// At least one part must hold.
    Any(Box<[Condition]>),
    /// The part must not hold.
    Not(Box<Condition>),
    /// A test of a field, which the next policy shares if the rule is unchanged.
    Atom(Arc<Atom>),
}

/// A test of a field.
#[derive(Clone, Debug)]
pub struct Atom {
    pub field: Field,
    pub test: AtomTest,
    /// The source texts of the expressions, if the test was compiled to expressions.
    pub sources: Box<[PatternSource]>,
}

/// A value in a policy that was compiled to an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternSource {
    /// The kind of test: `regex`, `glob`, `prefix`.
    pub kind: &'static str,
    /// The text in the policy.
    pub text: Box<str>,
}

#[derive(Clone, Debug)]
pub enum AtomTest {
    Text(TextTest),
    Number(Ranges),
    Address(Networks),
    /// Membership in a list, by its index in the policy.
    InList(usize),
}

impl Condition {
    /// Returns `true` if the other condition has the same tests, taken over by a reload. A test of a list
    /// depends on the policy.
    pub(crate) fn shares_atoms_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Always, Self::Always) => true,
            (Self::All(parts), Self::All(others)) | (Self::Any(parts), Self::Any(others)) => {
                let mut pairs = parts.iter().zip(others);
                parts.len() == others.len()
                    && pairs.all(|(part, other)| part.shares_atoms_with(other))
            }
            (Self::Not(part), Self::Not(other)) => part.shares_atoms_with(other),
            (Self::Atom(atom), Self::Atom(other)) => {
                Arc::ptr_eq(atom, other) && !matches!(atom.test, AtomTest::InList(_))
            }
            (Self::Always | Self::All(_) | Self::Any(_) | Self::Not(_) | Self::Atom(_), _) => false,
        }
    }

    /// Evaluates the condition.
    pub fn evaluate(&self, facts: &Facts<'_>, lists: &[PolicyList]) -> Truth {
        match self {
            Self::Always => Truth::Yes,
            Self::All(parts) => evaluate_parts(parts, Truth::No, facts, lists),
            Self::Any(parts) => evaluate_parts(parts, Truth::Yes, facts, lists),
            Self::Not(part) => part.evaluate(facts, lists).negate(),
            Self::Atom(atom) => atom.evaluate(facts, lists),
        }
    }

    /// Evaluates the condition if only the crawler is known.
    pub(crate) fn evaluate_for_crawler(&self, facts: &Facts<'_>, lists: &[PolicyList]) -> Truth {
        let parts_truth = |parts: &[Self], deciding: Truth| {
            let truths = parts
                .iter()
                .map(|part| part.evaluate_for_crawler(facts, lists));
            combine_truths(truths, deciding)
        };
        match self {
            Self::Always => Truth::Yes,
            Self::All(parts) => parts_truth(parts, Truth::No),
            Self::Any(parts) => parts_truth(parts, Truth::Yes),
            Self::Not(part) => part.evaluate_for_crawler(facts, lists).negate(),
            Self::Atom(atom) if atom.field == Field::Crawler => atom.evaluate(facts, lists),
            Self::Atom(_) => Truth::Unknown,
        }
    }

    /// Calls a function for each test in the condition.
    pub(crate) fn for_each_atom<'a>(&'a self, visit: &mut dyn FnMut(&'a Atom)) {
        match self {
            Self::Always => {}
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|p| p.for_each_atom(visit))
            }
            Self::Not(part) => part.for_each_atom(visit),
            Self::Atom(atom) => visit(atom),
        }
    }

    /// Calls a function for each field in the condition.
    pub fn for_each_field<'a>(&'a self, visit: &mut dyn FnMut(&'a Field)) {
        self.for_each_atom(&mut |atom| visit(&atom.field));
    }

    /// The first stage at which all fields in the condition are known; `None` if there are no
    /// fields.
    pub fn stage(&self) -> Option<PolicyStage> {
        let mut latest = None;
        self.for_each_field(&mut |field| latest = latest.max(Some(field.stage())));
        latest
    }
}

/// A part with the deciding value decides. Otherwise an unknown part makes the result unknown.
fn evaluate_parts(
    parts: &[Condition],
    deciding: Truth,
    facts: &Facts<'_>,
    lists: &[PolicyList],
) -> Truth {
    let truths = parts.iter().map(|part| part.evaluate(facts, lists));
    combine_truths(truths, deciding)
}

fn combine_truths(truths: impl Iterator<Item = Truth>, deciding: Truth) -> Truth {
    let mut value = deciding.negate();
    for truth in truths {
        match truth {
            truth if truth == deciding => return deciding,
            Truth::Unknown => value = Truth::Unknown,
            Truth::Yes | Truth::No => {}
        }
    }
    value
}

impl Atom {
    /// Evaluates the test.
    pub(crate) fn evaluate(&self, facts: &Facts<'_>, lists: &[PolicyList]) -> Truth {
        match &self.test {
            AtomTest::Text(test) => match self.text_matches(test, facts) {
                Fact::Known(value) => value.into(),
                Fact::Unknown => self.evaluate_in_tunnel(test, facts),
            },
            AtomTest::Number(ranges) => self
                .field
                .number(facts)
                .map(|n| n.is_some_and(|n| ranges.contains(n)))
                .into(),
            AtomTest::Address(networks) => self
                .field
                .address(facts)
                .map(|a| a.is_some_and(|a| networks.contains(a)))
                .into(),
            AtomTest::InList(list) => lists
                .get(*list)
                .map_or(Truth::Unknown, |list| self.evaluate_list(list, facts)),
        }
    }

    fn text_matches(&self, test: &TextTest, facts: &Facts<'_>) -> Fact<bool> {
        let target = if let TextKind::Count(..) = test.kind {
            facts.counted_target()
        } else {
            facts.target
        };
        self.field
            .any_text_of(target, facts, |text| test.matches(text))
    }

    fn evaluate_list(&self, list: &PolicyList, facts: &Facts<'_>) -> Truth {
        if let ListItems::Networks(_) = list.items {
            return facts
                .address
                .map(|a| a.is_some_and(|a| list.items.contains_address(a.to_canonical())))
                .into();
        }
        if self.field.value_type() == ValueType::Number {
            let number = self.field.number(facts);
            return number
                .map(|n| n.is_some_and(|n| list.items.contains(&n.to_string())))
                .into();
        }
        match self
            .field
            .any_text_matches(facts, |text| list.matches(&self.field, text))
        {
            Fact::Known(value) => value.into(),
            Fact::Unknown => self.evaluate_list_in_tunnel(list, facts),
        }
    }

    /// Like [`Self::evaluate_in_tunnel`], for lists of prefixes: two searches suffice, since the
    /// items are sorted.
    fn evaluate_list_in_tunnel(&self, list: &PolicyList, facts: &Facts<'_>) -> Truth {
        let (EvaluationTarget::Tunnel(target), ListItems::Prefixes(items)) =
            (facts.target, &list.items)
        else {
            return Truth::Unknown;
        };
        let Some(base) = self
            .tunnel_url_prefix(target)
            .filter(|_| self.field == Field::Url)
        else {
            return Truth::Unknown;
        };
        let base = match list.kind {
            ListKind::UrlPrefixes => Some(base),
            ListKind::Surts => to_surt(&base),
            ListKind::Domains
            | ListKind::Hosts
            | ListKind::Urls
            | ListKind::Substrings
            | ListKind::Globs
            | ListKind::Regexes
            | ListKind::Addresses
            | ListKind::Values => None,
        };
        match base {
            Some(base) if items.has_prefix_of(&base) => Truth::Yes,
            Some(base) if !items.has_any_starting_with(&base) => Truth::No,
            Some(_) | None => Truth::Unknown,
        }
    }

    /// Evaluates a test of the URL for a tunnel, of which only the host and port are known. A test
    /// that no URL in the tunnel meets is false; one that all URLs meet is true.
    fn evaluate_in_tunnel(&self, test: &TextTest, facts: &Facts<'_>) -> Truth {
        let EvaluationTarget::Tunnel(target) = facts.target else {
            return Truth::Unknown;
        };
        let Some(base) = self.tunnel_url_prefix(target) else {
            return Truth::Unknown;
        };
        let TextKind::Literal(kind, _) = test.kind else {
            return Truth::Unknown;
        };
        match kind {
            LiteralTestKind::Prefix => evaluate_prefixes(test, &base),
            LiteralTestKind::Surt => {
                to_surt(&base).map_or(Truth::Unknown, |base| evaluate_prefixes(test, &base))
            }
            LiteralTestKind::Exact if !test.has_value_starting_with(&base) => Truth::No,
            LiteralTestKind::Exact
            | LiteralTestKind::Suffix
            | LiteralTestKind::Contains
            | LiteralTestKind::Domain
            | LiteralTestKind::Ext
            | LiteralTestKind::Under => Truth::Unknown,
        }
    }

    /// Returns the common prefix of this atom's field over all URLs of a tunnel.
    fn tunnel_url_prefix(&self, target: &HostTarget) -> Option<String> {
        let authority = target.authority();
        if self.field == Field::Url {
            return Some(format!("{}://{authority}/", target.scheme().as_str()));
        }
        if self.field == Field::AuthorityPathQuery {
            return Some(format!("{authority}/"));
        }
        matches!(self.field, Field::Path | Field::PathAndQuery).then(|| "/".into())
    }
}

/// Evaluates a test for one of several prefixes, when only the beginning of the text is known.
fn evaluate_prefixes(test: &TextTest, known: &str) -> Truth {
    if test.has_prefix_of(known) {
        Truth::Yes
    } else if test.has_value_starting_with(known) {
        Truth::Unknown
    } else {
        Truth::No
    }
}
