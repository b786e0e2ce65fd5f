//! Conditions and their evaluation in three values: yes, no, unknown (policy.md sections 3 and 4).

use super::fact::{Fact, Facts, Subject};
use super::field::{Field, ValueType};
use super::list::{Items, List, ListKind};
use super::pattern::{Case, Networks, Ranges, TextKind, TextTest, surt};
use super::rule::PolicyStage;
use crate::vocab::target::HostTarget;

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
    pub fn negated(self) -> Self {
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
    pub test: Test,
    /// Of a test by expressions what each of them stands for, as it was written; else empty.
    pub written: Box<[Written]>,
}

/// A value of a policy that was compiled to an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The kind of test under which it stands: `regex`, `glob`, `prefix`.
    pub kind: &'static str,
    /// Its text.
    pub text: Box<str>,
}

/// What an atom asks of its field.
#[derive(Clone, Debug)]
pub enum Test {
    /// Of a field with text.
    Text(TextTest),
    /// Of a field with a number.
    Number(Ranges),
    /// Of the address.
    Address(Networks),
    /// Membership in a list, given by its place in the policy.
    In(usize),
}

impl Condition {
    /// The value of the condition under these facts.
    pub fn evaluate(&self, facts: &Facts<'_>, lists: &[List]) -> Truth {
        match self {
            Self::Always => Truth::Yes,
            Self::All(parts) => settle(parts, Truth::No, facts, lists),
            Self::Any(parts) => settle(parts, Truth::Yes, facts, lists),
            Self::Not(part) => part.evaluate(facts, lists).negated(),
            Self::Atom(atom) => atom.evaluate(facts, lists),
        }
    }

    /// Calls a function for every field that the condition names.
    pub fn each_field<'a>(&'a self, visit: &mut dyn FnMut(&'a Field)) {
        match self {
            Self::Always => {}
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|p| p.each_field(visit)),
            Self::Not(part) => part.each_field(visit),
            Self::Atom(atom) => visit(&atom.field),
        }
    }

    /// The stage from which on every field that it names is known; `None` if it names none.
    pub fn stage(&self) -> Option<PolicyStage> {
        let mut latest = None;
        self.each_field(&mut |field| latest = latest.max(Some(field.stage())));
        latest
    }
}

/// One part that has the deciding value decides; else one that is unknown leaves it open.
fn settle(parts: &[Condition], deciding: Truth, facts: &Facts<'_>, lists: &[List]) -> Truth {
    let mut value = deciding.negated();
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
    pub(in crate::policy) fn evaluate(&self, facts: &Facts<'_>, lists: &[List]) -> Truth {
        match &self.test {
            Test::Text(test) => match self.field.any_text(facts, |text| test.matches(text)) {
                Fact::Known(value) => value.into(),
                Fact::Unknown => self.within_tunnel(test, facts),
            },
            Test::Number(ranges) => self
                .field
                .number(facts)
                .map(|n| n.is_some_and(|n| ranges.contain(n)))
                .into(),
            Test::Address(networks) => self
                .field
                .address(facts)
                .map(|a| a.is_some_and(|a| networks.contain(a)))
                .into(),
            Test::In(list) => lists
                .get(*list)
                .map_or(Truth::Unknown, |list| self.is_in(list, facts)),
        }
    }

    fn is_in(&self, list: &List, facts: &Facts<'_>) -> Truth {
        if let Items::Networks(_) = list.items {
            return facts
                .address
                .map(|a| a.is_some_and(|a| list.items.covers(a.to_canonical())))
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
            .any_text(facts, |text| list.holds(&self.field, text))
        {
            Fact::Known(value) => value.into(),
            Fact::Unknown => self.list_within_tunnel(list, facts),
        }
    }

    /// As [`Self::within_tunnel`], for lists of beginnings: their items are sorted, so it costs two searches.
    fn list_within_tunnel(&self, list: &List, facts: &Facts<'_>) -> Truth {
        let (Subject::Tunnel(target), Items::Prefixes(items)) = (facts.subject, &list.items) else {
            return Truth::Unknown;
        };
        let Some(base) = self
            .tunnel_base(target)
            .filter(|_| self.field == Field::Url)
        else {
            return Truth::Unknown;
        };
        let base = match list.kind {
            ListKind::UrlPrefixes => Some(base),
            ListKind::Surts => surt(&base),
            ListKind::Domains
            | ListKind::Hosts
            | ListKind::Urls
            | ListKind::Addresses
            | ListKind::Values => None,
        };
        match base {
            Some(base) if items.has_prefix_of(&base) => Truth::Yes,
            Some(base) if !items.has_any_below(&base) => Truth::No,
            Some(_) | None => Truth::Unknown,
        }
    }

    /// A tunnel shows only where it leads: a URL test that cannot fit there is false, one that every URL there
    /// passes is true (policy.md section 4).
    fn within_tunnel(&self, test: &TextTest, facts: &Facts<'_>) -> Truth {
        let Subject::Tunnel(target) = facts.subject else {
            return Truth::Unknown;
        };
        let Some(base) = self.tunnel_base(target) else {
            return Truth::Unknown;
        };
        let fits = |a: &str, b: &str| {
            a.get(..b.len()).is_some_and(|head| match test.case {
                Case::Distinguish => head == b,
                Case::Ignore => head.eq_ignore_ascii_case(b),
            })
        };
        if let TextKind::Prefix(values) = &test.kind {
            return Self::of_prefixes(values, &base, fits);
        }
        if let (TextKind::Surt(values), Some(base)) = (&test.kind, surt(&base)) {
            return Self::of_prefixes(values, &base, fits);
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
    fn tunnel_base(&self, target: &HostTarget) -> Option<String> {
        let authority = target.authority();
        if self.field == Field::Url {
            return Some(format!("{}://{authority}/", target.scheme().as_str()));
        }
        if self.field == Field::AuthorityPathQuery {
            return Some(format!("{authority}/"));
        }
        matches!(self.field, Field::Path | Field::PathAndQuery).then(|| "/".into())
    }

    fn of_prefixes(values: &[Box<str>], base: &str, fits: impl Fn(&str, &str) -> bool) -> Truth {
        if values.iter().any(|v| fits(base, v)) {
            Truth::Yes
        } else if values.iter().any(|v| fits(v, base)) {
            Truth::Unknown
        } else {
            Truth::No
        }
    }
}
