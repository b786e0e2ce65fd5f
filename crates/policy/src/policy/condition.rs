//! Conditions and their evaluation in three values: yes, no, unknown (policy.md sections 3 and 4).

use super::fact::{EvaluationTarget, Fact, Facts};
use super::field::{Field, ValueType};
use super::list::{ListItems, ListKind, PolicyList};
use super::pattern::{CaseSensitivity, Networks, Ranges, TextKind, TextTest, to_surt};
use super::rule::PolicyStage;
use crate::urls::target::HostTarget;

/// The value of a condition while some facts are unknown (Kleene's strong logic).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds, whatever the facts to come.
    Yes,
    /// It does not hold, whatever the facts to come.
    No,
    /// It depends on facts that are not known.
    Unknown,
}

impl Truth {
    /// The opposite; unknown stays unknown.
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

/// A condition, compiled.
#[derive(Clone, Debug)]
pub enum Condition {
    /// `always: true`, and a mapping without keys.
    Always,
    /// Every one of them; also the keys of one mapping.
    All(Box<[Condition]>),
    /// At least one of them.
    Any(Box<[Condition]>),
    /// The opposite.
    Not(Box<Condition>),
    /// One test of one field.
    Atom(Box<Atom>),
}

/// One test of one field.
#[derive(Clone, Debug)]
pub struct Atom {
    /// The field.
    pub field: Field,
    /// The test.
    pub test: AtomTest,
    /// Of a test by expressions what each of them stands for, as it was written; else empty.
    pub sources: Box<[PatternSource]>,
}

/// A value of a policy that was compiled to an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternSource {
    /// The kind of test under which it stands: `regex`, `glob`, `prefix`.
    pub kind: &'static str,
    /// Its text.
    pub text: Box<str>,
}

/// What an atom asks of its field.
#[derive(Clone, Debug)]
pub enum AtomTest {
    /// Of a field with text.
    Text(TextTest),
    /// Of a field with a number.
    Number(Ranges),
    /// Of the address.
    Address(Networks),
    /// Membership in a list, given by its place in the policy.
    InList(usize),
}

impl Condition {
    /// The value of the condition under these facts.
    pub fn evaluate(&self, facts: &Facts<'_>, lists: &[PolicyList]) -> Truth {
        match self {
            Self::Always => Truth::Yes,
            Self::All(parts) => evaluate_parts(parts, Truth::No, facts, lists),
            Self::Any(parts) => evaluate_parts(parts, Truth::Yes, facts, lists),
            Self::Not(part) => part.evaluate(facts, lists).negate(),
            Self::Atom(atom) => atom.evaluate(facts, lists),
        }
    }

    /// Calls a function for every field that the condition names.
    pub fn for_each_field<'a>(&'a self, visit: &mut dyn FnMut(&'a Field)) {
        match self {
            Self::Always => {}
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|p| p.for_each_field(visit))
            }
            Self::Not(part) => part.for_each_field(visit),
            Self::Atom(atom) => visit(&atom.field),
        }
    }

    /// The stage from which on every field that it names is known; `None` if it names none.
    pub fn stage(&self) -> Option<PolicyStage> {
        let mut latest = None;
        self.for_each_field(&mut |field| latest = latest.max(Some(field.stage())));
        latest
    }
}

/// One part that has the deciding value decides; else one that is unknown leaves it open.
fn evaluate_parts(
    parts: &[Condition],
    deciding: Truth,
    facts: &Facts<'_>,
    lists: &[PolicyList],
) -> Truth {
    let mut value = deciding.negate();
    for part in parts {
        match part.evaluate(facts, lists) {
            truth if truth == deciding => return deciding,
            Truth::Unknown => value = Truth::Unknown,
            Truth::Yes | Truth::No => {}
        }
    }
    value
}

impl Atom {
    /// The value of the test under these facts.
    pub(crate) fn evaluate(&self, facts: &Facts<'_>, lists: &[PolicyList]) -> Truth {
        match &self.test {
            AtomTest::Text(test) => match self
                .field
                .any_text_matches(facts, |text| test.matches(text))
            {
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

    /// As [`Self::evaluate_in_tunnel`], for lists of beginnings: their items are sorted, so it costs two searches.
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
            | ListKind::Addresses
            | ListKind::Values => None,
        };
        match base {
            Some(base) if items.has_prefix_of(&base) => Truth::Yes,
            Some(base) if !items.has_any_starting_with(&base) => Truth::No,
            Some(_) | None => Truth::Unknown,
        }
    }

    /// A tunnel shows only where it leads: a URL test that cannot fit there is false, one that every URL there
    /// passes is true (policy.md section 4).
    fn evaluate_in_tunnel(&self, test: &TextTest, facts: &Facts<'_>) -> Truth {
        let EvaluationTarget::Tunnel(target) = facts.target else {
            return Truth::Unknown;
        };
        let Some(base) = self.tunnel_url_prefix(target) else {
            return Truth::Unknown;
        };
        let fits = |a: &str, b: &str| {
            a.get(..b.len()).is_some_and(|head| match test.case {
                CaseSensitivity::Sensitive => head == b,
                CaseSensitivity::Insensitive => head.eq_ignore_ascii_case(b),
            })
        };
        if let TextKind::Prefix(values) = &test.kind {
            return Self::evaluate_prefixes(values, &base, fits);
        }
        if let (TextKind::Surt(values), Some(base)) = (&test.kind, to_surt(&base)) {
            return Self::evaluate_prefixes(values, &base, fits);
        }
        let impossible =
            matches!(&test.kind, TextKind::Exact(values) if values.iter().all(|v| !fits(v, &base)));
        if impossible {
            Truth::No
        } else {
            Truth::Unknown
        }
    }

    /// What every URL of a tunnel begins with, in this atom's field.
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

    fn evaluate_prefixes(
        values: &[Box<str>],
        base: &str,
        fits: impl Fn(&str, &str) -> bool,
    ) -> Truth {
        if values.iter().any(|v| fits(base, v)) {
            Truth::Yes
        } else if values.iter().any(|v| fits(v, base)) {
            Truth::Unknown
        } else {
            Truth::No
        }
    }
}
