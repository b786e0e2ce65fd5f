//! Implications between conditions, in three-valued logic.
//!
//! *A implies B*: whenever A is yes, B is yes. *A excludes B*: whenever A is yes, B is no. Both
//! must hold for every set of facts about a URL. Facts of later stages may be unknown, but all
//! tests of a field are known together.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::policy::condition::{Assertion, Atom, AtomTest, Condition, Polarity, Truth};
use crate::policy::fact::Facts;
use crate::policy::field::Field;
use crate::policy::list::{ListKind, PolicyList};
use crate::policy::pattern::{
    CaseSensitivity, LiteralTestKind, Networks, TextForm, TextKind, TextTest,
};
use crate::policy::rule::PolicyStage;
use crate::urls::target::UrlTarget;

use super::text_logic;

/// The maximum depth of nested case distinctions.
const MAX_BRANCH_DEPTH: u8 = 2;
/// The maximum number of cases in each of them.
const MAX_BRANCHES: usize = 8;

/// Assertions that hold together.
#[derive(Clone, Debug)]
pub(crate) struct Assumptions<'p> {
    lists: &'p [PolicyList],
    /// Most rules have one test.
    atoms: SmallVec<[(&'p Atom, Polarity); 1]>,
    /// For each of these, at least one part has the value.
    alternatives: Vec<(&'p [Condition], Polarity)>,
    /// Set if one of the assertions is false for all facts.
    is_absurd: bool,
}

impl<'p> Assumptions<'p> {
    /// Creates assumptions from assertions.
    pub(super) fn new(
        assertions: impl IntoIterator<Item = Assertion<'p>>,
        lists: &'p [PolicyList],
    ) -> Self {
        let mut assumptions = Self {
            lists,
            atoms: SmallVec::new(),
            alternatives: Vec::new(),
            is_absurd: false,
        };
        for assertion in assertions {
            assumptions.add(assertion.condition, assertion.polarity);
        }
        assumptions
    }

    /// Returns the assumptions with additional assertions.
    pub(super) fn with(&self, assertions: impl IntoIterator<Item = Assertion<'p>>) -> Self {
        let mut more = self.clone();
        for assertion in assertions {
            more.add(assertion.condition, assertion.polarity);
        }
        more
    }

    /// The tests that hold.
    pub(super) fn positive_atoms(&self) -> impl Iterator<Item = &'p Atom> {
        self.atoms
            .iter()
            .filter(|(_, value)| *value == Polarity::Yes)
            .map(|(atom, _)| *atom)
    }

    /// For each test that enumerates hosts, returns them: exact ones, domains, and hosts of whole
    /// URLs.
    pub(super) fn host_sets(&self) -> impl Iterator<Item = Vec<Cow<'p, str>>> {
        self.positive_atoms().filter_map(|atom| {
            let AtomTest::Text(test) = &atom.test else {
                return None;
            };
            let hosts = match (&atom.field, &test.kind) {
                (
                    Field::Host,
                    TextKind::Literal(LiteralTestKind::Exact | LiteralTestKind::Domain, hosts),
                ) => hosts.iter().map(|host| Cow::Borrowed(&**host)).collect(),
                (
                    Field::Url,
                    TextKind::Literal(LiteralTestKind::Exact | LiteralTestKind::Prefix, urls),
                ) if is_verbatim(test) => urls
                    .iter()
                    .map(|url| host_of(url).map(Cow::Owned))
                    .collect::<Option<Vec<_>>>()?,
                _ => return None,
            };
            Some(hosts)
        })
    }

    fn add(&mut self, condition: &'p Condition, polarity: Polarity) {
        match (condition, polarity) {
            (Condition::Always, Polarity::Yes) => {}
            (Condition::Always, Polarity::No) => self.is_absurd = true,
            (Condition::All(parts), Polarity::Yes) | (Condition::Any(parts), Polarity::No) => {
                for part in parts {
                    self.add(part, polarity);
                }
            }
            (Condition::All(parts), Polarity::No) | (Condition::Any(parts), Polarity::Yes) => {
                match &**parts {
                    [part] => self.add(part, polarity),
                    parts => self.alternatives.push((parts, polarity)),
                }
            }
            (Condition::Not(part), polarity) => self.add(part, polarity.negate()),
            (Condition::Atom(atom), polarity) => self.atoms.push((atom, polarity)),
        }
    }

    /// Returns `true` if the assertion follows from the assumptions.
    pub(super) fn entail(&self, assertion: Assertion<'_>) -> bool {
        self.entail_within(assertion.condition, assertion.polarity, MAX_BRANCH_DEPTH)
    }

    fn entail_within(&self, condition: &Condition, polarity: Polarity, depth: u8) -> bool {
        self.entail_directly(condition, polarity, depth)
            || self.in_every_branch(depth, |more, depth| {
                more.entail_within(condition, polarity, depth)
            })
    }

    fn entail_directly(&self, condition: &Condition, polarity: Polarity, depth: u8) -> bool {
        match (condition, polarity) {
            (Condition::Always, Polarity::Yes) => true,
            (Condition::Always, Polarity::No) => false,
            (Condition::All(parts), Polarity::Yes) | (Condition::Any(parts), Polarity::No) => parts
                .iter()
                .all(|part| self.entail_within(part, polarity, depth)),
            (Condition::All(parts), Polarity::No) | (Condition::Any(parts), Polarity::Yes) => parts
                .iter()
                .any(|part| self.entail_within(part, polarity, depth)),
            (Condition::Not(part), polarity) => self.entail_within(part, polarity.negate(), depth),
            (Condition::Atom(atom), Polarity::Yes) => {
                always_holds(atom)
                    || self
                        .positive_atoms()
                        .any(|known| implies(known, atom, self.lists))
            }
            (Condition::Atom(atom), Polarity::No) => {
                self.atoms.iter().any(|(known, value)| match value {
                    Polarity::Yes => excludes(known, atom, self.lists),
                    Polarity::No => implies(atom, known, self.lists),
                })
            }
        }
    }

    /// Returns `true` if the assumptions can never hold together.
    pub(super) fn are_contradictory(&self) -> bool {
        self.contradict_within(MAX_BRANCH_DEPTH)
    }

    fn contradict_within(&self, depth: u8) -> bool {
        self.is_absurd
            || self
                .atoms
                .iter()
                .enumerate()
                .any(|(at, literal)| self.contradicts(at, *literal))
            || self.in_every_branch(depth, Self::contradict_within)
    }

    /// Returns `true` if an atom contradicts an earlier one.
    fn contradicts(&self, at: usize, (atom, value): (&Atom, Polarity)) -> bool {
        let mut before = self.atoms.iter().take(at);
        match value {
            Polarity::Yes => before.any(|(other, value)| match value {
                Polarity::Yes => {
                    excludes(other, atom, self.lists) || excludes(atom, other, self.lists)
                }
                Polarity::No => implies(atom, other, self.lists),
            }),
            Polarity::No => {
                always_holds(atom)
                    || before.any(|(other, value)| {
                        *value == Polarity::Yes && implies(other, atom, self.lists)
                    })
            }
        }
    }

    /// Returns `true` if a property holds in every case of one of the alternatives.
    fn in_every_branch(&self, depth: u8, holds: impl Fn(&Self, u8) -> bool) -> bool {
        let Some(depth) = depth.checked_sub(1) else {
            return false;
        };
        let small = self
            .alternatives
            .iter()
            .enumerate()
            .filter(|(_, (parts, _))| parts.len() <= MAX_BRANCHES);
        small.into_iter().any(|(at, (parts, polarity))| {
            parts.iter().all(|part| {
                let mut more = self.clone();
                more.alternatives.swap_remove(at);
                more.add(part, *polarity);
                more.contradict_within(depth) || holds(&more, depth)
            })
        })
    }
}

/// Returns `true` if a test holds for every URL.
fn always_holds(atom: &Atom) -> bool {
    let AtomTest::Text(test) = &atom.test else {
        return false;
    };
    atom.field.stage() == PolicyStage::Request && text_logic::always_passes(&atom.field, test)
}

fn implies(a: &Atom, b: &Atom, lists: &[PolicyList]) -> bool {
    if a.field != b.field {
        return url_test_decides(a, b, lists, Polarity::Yes);
    }
    match (&a.test, &b.test) {
        (AtomTest::Text(one), AtomTest::Text(other)) => text_logic::implies(&a.field, one, other),
        (AtomTest::Number(one), AtomTest::Number(other)) => text_logic::ranges_within(one, other),
        (AtomTest::Address(one), AtomTest::Address(other)) => networks_within(one, other),
        (AtomTest::InList(one), AtomTest::InList(other)) => one == other,
        (AtomTest::Text(test), AtomTest::InList(list)) => lists
            .get(*list)
            .is_some_and(|list| list_contains_all(&a.field, test, list)),
        (
            AtomTest::Text(_) | AtomTest::Number(_) | AtomTest::Address(_) | AtomTest::InList(_),
            _,
        ) => false,
    }
}

fn excludes(a: &Atom, b: &Atom, lists: &[PolicyList]) -> bool {
    if a.field != b.field {
        return url_test_decides(a, b, lists, Polarity::No)
            || url_test_decides(b, a, lists, Polarity::No);
    }
    // A URL may contain a parameter twice with different values.
    if let Field::Param(_) = a.field {
        return false;
    }
    match (&a.test, &b.test) {
        (AtomTest::Text(one), AtomTest::Text(other)) => text_logic::excludes(&a.field, one, other),
        (AtomTest::Number(one), AtomTest::Number(other)) => text_logic::ranges_disjoint(one, other),
        (AtomTest::Address(one), AtomTest::Address(other)) => networks_disjoint(one, other),
        (AtomTest::Text(test), AtomTest::InList(list))
        | (AtomTest::InList(list), AtomTest::Text(test)) => lists
            .get(*list)
            .is_some_and(|list| list_contains_none(&a.field, test, list)),
        (
            AtomTest::Text(_) | AtomTest::Number(_) | AtomTest::Address(_) | AtomTest::InList(_),
            _,
        ) => false,
    }
}

/// Returns `true` if every address in `a` is in `b`.
fn networks_within(a: &Networks, b: &Networks) -> bool {
    a.0.iter()
        .all(|one| b.0.iter().any(|other| other.contains(one)))
}

fn networks_disjoint(a: &Networks, b: &Networks) -> bool {
    !a.0.iter().any(|one| {
        b.0.iter()
            .any(|other| other.contains(one) || one.contains(other))
    })
}

/// Returns `true` if every text that passes the test is in the list.
fn list_contains_all(field: &Field, test: &TextTest, list: &PolicyList) -> bool {
    if let Some(texts) = text_logic::only_texts(field, test) {
        return texts.iter().all(|text| list.matches(field, text));
    }
    if test.case != CaseSensitivity::Sensitive && !field.ignores_case()
        || test.form != TextForm::Canonical
    {
        return false;
    }
    match (&test.kind, list.kind, field) {
        (TextKind::Literal(LiteralTestKind::Domain, values), ListKind::Domains, Field::Host) => {
            values.iter().all(|value| list.items.has_parent_of(value))
        }
        (TextKind::Literal(LiteralTestKind::Prefix, values), ListKind::UrlPrefixes, Field::Url)
        | (TextKind::Literal(LiteralTestKind::Surt, values), ListKind::Surts, Field::Url) => {
            values.iter().all(|value| list.items.has_prefix_of(value))
        }
        _ => false,
    }
}

fn list_contains_none(field: &Field, test: &TextTest, list: &PolicyList) -> bool {
    text_logic::only_texts(field, test)
        .is_some_and(|texts| !texts.iter().any(|text| list.matches(field, text)))
}

/// Returns `true` if a test of the whole URL or its beginning implies that another test of the URL
/// has this value.
fn url_test_decides(a: &Atom, b: &Atom, lists: &[PolicyList], value: Polarity) -> bool {
    let AtomTest::Text(test) = &a.test else {
        return false;
    };
    if a.field != Field::Url || !is_verbatim(test) {
        return false;
    }
    match &test.kind {
        TextKind::Literal(LiteralTestKind::Exact, urls) => urls
            .iter()
            .all(|url| evaluate_for_url(url, b, lists) == Some(value)),
        TextKind::Literal(LiteralTestKind::Prefix, urls) => urls
            .iter()
            .all(|url| holds_for_url_prefix(url, b, lists, value)),
        TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..) => false,
    }
}

/// Returns the value of a test for a URL, if the URL alone decides it.
fn evaluate_for_url(url: &str, atom: &Atom, lists: &[PolicyList]) -> Option<Polarity> {
    let target = UrlTarget::parse(url)
        .ok()
        .filter(|target| target.as_str() == url)?;
    if !atom.field.is_url_part() {
        return None;
    }
    match atom.evaluate(&Facts::for_url(&target), lists) {
        Truth::Yes => Some(Polarity::Yes),
        Truth::No => Some(Polarity::No),
        Truth::Unknown => None,
    }
}

/// Returns `true` if a test has this value for every URL with a prefix. A prefix that extends past
/// the host determines the scheme, host and port, and the beginning of the path.
fn holds_for_url_prefix(url: &str, atom: &Atom, lists: &[PolicyList], value: Polarity) -> bool {
    let Some((origin, path)) = origin_and_path(url) else {
        return false;
    };
    if let Field::Scheme | Field::Host | Field::Port | Field::Authority = atom.field {
        return evaluate_for_url(origin, atom, lists) == Some(value);
    }
    if atom.field != Field::Path {
        return false;
    }
    let kind = match path.split_once('?') {
        Some((path, _)) => TextKind::Literal(LiteralTestKind::Exact, [path.into()].into()),
        None => TextKind::Literal(LiteralTestKind::Prefix, [path.into()].into()),
    };
    let test = TextTest::new(kind, CaseSensitivity::Sensitive, TextForm::Canonical);
    let prefix = Atom {
        field: Field::Path,
        test: AtomTest::Text(test),
        sources: [].into(),
    };
    match value {
        Polarity::Yes => implies(&prefix, atom, lists),
        Polarity::No => excludes(&prefix, atom, lists),
    }
}

fn is_verbatim(test: &TextTest) -> bool {
    test.case == CaseSensitivity::Sensitive && test.form == TextForm::Canonical
}

fn host_of(url: &str) -> Option<String> {
    let (origin, _) = origin_and_path(url)?;
    Some(UrlTarget::parse(origin).ok()?.host().to_owned())
}

/// Splits `http://h/a` into `http://h/` and `/a`.
fn origin_and_path(url: &str) -> Option<(&str, &str)> {
    let authority = url.find("://")? + 3;
    let slash = authority + url.get(authority..)?.find('/')?;
    Some((url.get(..=slash)?, url.get(slash..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::policy::compile;
    use crate::policy::rule::RuleBody;
    use crate::policy::source::MemoryFileSystem;

    /// A policy with two filters.
    fn policy(a: &str, b: &str) -> Policy {
        let text = format!(
            "policy: 1\nname: t\noptions: {{ disposition: allow }}\n\
             lists: {{ l: {{ kind: domains, items: [foo.com] }} }}\n\
             rules:\n  - {{ id: a, forbid: {a} }}\n  - {{ id: b, forbid: {b} }}\n"
        );
        compile::load(&MemoryFileSystem::new().with_file("p", text), "p")
            .unwrap()
            .policy
    }

    fn relation(a: &str, b: &str) -> &'static str {
        let policy = policy(a, b);
        let assertion = |at: usize| match &policy.rules[at].body {
            RuleBody::Filter(filter) => Assertion {
                condition: &filter.condition,
                polarity: Polarity::Yes,
            },
            RuleBody::Group(_) => panic!("a filter"),
        };
        let assumptions = Assumptions::new([assertion(0)], &policy.lists);
        if assumptions.entail(assertion(1)) {
            return "implies";
        }
        if assumptions.with([assertion(1)]).are_contradictory() {
            "excludes"
        } else {
            ""
        }
    }

    /// Two conditions, and the relation of the first to the second.
    const RELATIONS: &[(&str, &str, &str)] = &[
        ("{ host: foo.com }", "{ domain: foo.com }", "implies"),
        ("{ domain: foo.com }", "{ host: foo.com }", ""),
        ("{ domain: a.foo.com }", "{ domain: foo.com }", "implies"),
        ("{ domain: afoo.com }", "{ domain: foo.com }", "excludes"),
        ("{ domain: a.foo.com }", "{ in: l }", "implies"),
        ("{ host: bar.com }", "{ in: l }", "excludes"),
        (
            "{ host: [a.com, b.com] }",
            "{ host: [b.com, a.com, c.com] }",
            "implies",
        ),
        ("{ host: [a.com, b.com] }", "{ host: b.com }", ""),
        (
            "{ url: 'http://foo.com/a.gif?x=1' }",
            "{ ext: gif, param.x: 1, domain: foo.com }",
            "implies",
        ),
        ("{ url: 'http://foo.com/a' }", "{ method: GET }", ""),
        (
            "{ url_prefix: 'http://foo.com/a/b' }",
            "{ host: foo.com, path: /a }",
            "implies",
        ),
        (
            "{ url_prefix: 'http://foo.com/a/b' }",
            "{ under: /a }",
            "implies",
        ),
        ("{ url_prefix: 'http://foo.com/a' }", "{ under: /a }", ""),
        (
            "{ url_prefix: 'http://foo.com/a' }",
            "{ host: bar.com }",
            "excludes",
        ),
        (
            "{ host: bar.com }",
            "{ url_prefix: ['http://foo.com/a', 'https://baz.com/'] }",
            "excludes",
        ),
        (
            "{ url_prefix: 'http://foo.com/a' }",
            "{ path: /b }",
            "excludes",
        ),
        (
            "{ url_prefix: 'http://foo.com/' }",
            "{ port: 443 }",
            "excludes",
        ),
        ("{ under: /a/b }", "{ under: /a }", "implies"),
        ("{ under: /ab }", "{ under: /a }", "excludes"),
        ("{ under: /a }", "{ path: /a }", "implies"),
        ("{ path: /a }", "{ under: /a }", ""),
        ("{ path: /ab }", "{ path: { contains: b } }", "implies"),
        (
            "{ path: /Ab }",
            "{ path: { prefix: /a, case: ignore } }",
            "implies",
        ),
        (
            "{ path: { prefix: /Ab, case: ignore } }",
            "{ path: /ab }",
            "",
        ),
        ("{ ext: tar.gz }", "{ ext: gz }", "implies"),
        (
            "{ ext: [gif, png] }",
            "{ not: { ext: [jpg, pdf] } }",
            "implies",
        ),
        ("{ path: { suffix: .gif } }", "{ ext: gif }", "implies"),
        ("{ ext: gif }", "{ path: { suffix: .gif } }", ""),
        (
            "{ path: { exact: /a/a } }",
            "{ path: { repeats: 2 } }",
            "implies",
        ),
        (
            "{ path: { regex: a.*b } }",
            "{ path: { regex: a.*b } }",
            "implies",
        ),
        (
            "{ path: { regex: a.*b } }",
            "{ path: { regex: a.*b, case: ignore } }",
            "",
        ),
        ("{ param.x: 1 }", "{ param.x: 2 }", ""),
        ("{ param.x: 1 }", "{ param.x: { prefix: '1' } }", "implies"),
        ("{ depth: '[3:5]' }", "{ depth: '[2:]' }", "implies"),
        ("{ depth: '[3:5]' }", "{ depth: '[:2]' }", "excludes"),
        (
            "{ address: 10.1.0.0/16 }",
            "{ address: 10.0.0.0/8 }",
            "implies",
        ),
        (
            "{ address: 10.0.0.0/8 }",
            "{ address: 11.0.0.0/8 }",
            "excludes",
        ),
        (
            "{ content_type: image/png }",
            "{ content_type: image/* }",
            "implies",
        ),
        (
            "{ content_type: image/png }",
            "{ content_type: text/html }",
            "excludes",
        ),
        ("{ host: a.com, ext: gif }", "{ host: a.com }", "implies"),
        (
            "{ any: [{ host: a.com }, { host: b.com }] }",
            "{ host: [a.com, b.com] }",
            "implies",
        ),
        (
            "{ host: a.com }",
            "{ any: [{ ext: gif }, { host: a.com }] }",
            "implies",
        ),
        (
            "{ not: { domain: foo.com } }",
            "{ not: { host: foo.com } }",
            "implies",
        ),
        (
            "{ not: { host: foo.com } }",
            "{ not: { domain: foo.com } }",
            "",
        ),
        (
            "{ host: a.com, not: { host: a.com } }",
            "{ ext: gif }",
            "excludes",
        ),
        ("{ ext: gif }", "{ always: true }", "implies"),
        ("{ ext: gif }", "{ path: / }", "implies"),
        (
            "{ path: { prefix: '/%41', norm: true } }",
            "{ path: /A }",
            "",
        ),
    ];

    #[test]
    fn relations_of_conditions_are_found() {
        for &(a, b, expected) in RELATIONS {
            assert_eq!(relation(a, b), expected, "{a} and {b}");
        }
    }
}
