//! Triggers: what a request must have so that a rule may have an effect on it.

use std::cmp::Reverse;

use crate::policy::condition::{Atom, AtomTest, Condition, Polarity};
use crate::policy::field::{Field, ValueType};
use crate::policy::list::{ListItems, ListKind, PolicyList};
use crate::policy::literals::{self, RequiredLiterals};
use crate::policy::pattern::{CaseSensitivity, LiteralTestKind, TextForm, TextKind, TextTest};

/// A fact that the index can look up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum IndexKey {
    /// The URL's host is this one or a subdomain of it.
    Host(Box<str>),
    /// The URL in lower case contains this text.
    Literal(Box<str>),
    /// The crawler has this name.
    Crawler(Box<str>),
}

/// A condition has a certain value only if one of these keys fits. Without keys it never has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trigger {
    pub(super) keys: Vec<IndexKey>,
    /// `true` if another trigger of the condition fits only where this one does. This one is cheaper:
    /// a host is looked up, a longer text needs a larger automaton.
    pub(super) is_implied: bool,
}

/// The largest number of keys in a trigger. A test with more values looks them up itself.
const MAX_KEYS: usize = 64;

/// Returns triggers, each of which suffices: whenever the condition has the value, or may have it because
/// facts are unknown, one key of each trigger fits. Without any, the condition may have the value
/// for every request.
pub(super) fn triggers(
    condition: &Condition,
    polarity: Polarity,
    lists: &[PolicyList],
) -> Vec<Trigger> {
    match (condition, polarity) {
        (Condition::Always, Polarity::Yes) => Vec::new(),
        (Condition::Always, Polarity::No) => vec![Trigger::default()],
        (Condition::Not(part), _) => triggers(part, polarity.negate(), lists),
        // Each part must have the value, so the triggers of any part will do.
        (Condition::All(parts), Polarity::Yes) | (Condition::Any(parts), Polarity::No) => parts
            .iter()
            .flat_map(|part| triggers(part, polarity, lists))
            .collect(),
        // One part suffices, so a trigger needs the keys of all.
        (Condition::Any(parts), Polarity::Yes) | (Condition::All(parts), Polarity::No) => {
            let of_parts = parts
                .iter()
                .map(|part| best(triggers(part, polarity, lists)));
            union(of_parts).into_iter().collect()
        }
        (Condition::Atom(atom), Polarity::Yes) => atom_triggers(atom, lists),
        (Condition::Atom(_), Polarity::No) => Vec::new(),
    }
}

/// Joins triggers of which one must fit; `None` if one is missing or there are too many keys.
fn union(parts: impl Iterator<Item = Option<Trigger>>) -> Option<Trigger> {
    let mut all = Trigger::default();
    for part in parts {
        all.keys.append(&mut part?.keys);
        if all.keys.len() > MAX_KEYS {
            return None;
        }
    }
    Some(all)
}

/// Returns the trigger that probably fits the fewest requests.
fn best(triggers: Vec<Trigger>) -> Option<Trigger> {
    triggers
        .into_iter()
        .filter(|trigger| !trigger.is_implied)
        .max_by_key(|trigger| (trigger.strength(), Reverse(trigger.keys.len())))
}

impl Trigger {
    /// A measure of how few requests it fits: that of its weakest key.
    pub(super) fn strength(&self) -> usize {
        self.keys
            .iter()
            .map(IndexKey::strength)
            .min()
            .unwrap_or(usize::MAX)
    }
}

impl IndexKey {
    /// A measure of how few requests it fits.
    fn strength(&self) -> usize {
        match self {
            // A name such as `com` is as frequent as a short text.
            Self::Host(name) | Self::Crawler(name) => 2 * name.len(),
            Self::Literal(text) => text.len(),
        }
    }
}

/// Returns triggers for the case that a test of a field holds.
fn atom_triggers(atom: &Atom, lists: &[PolicyList]) -> Vec<Trigger> {
    let (keys, hosts) = match &atom.test {
        AtomTest::Text(test) => (
            text_keys(&atom.field, test),
            url_host_keys(&atom.field, test),
        ),
        AtomTest::InList(list) => {
            let list = lists.get(*list);
            (list.and_then(|list| list_keys(&atom.field, list)), None)
        }
        AtomTest::Number(_) | AtomTest::Address(_) => (None, None),
    };
    let Some(keys) = keys.filter(|keys| keys.len() <= MAX_KEYS) else {
        return Vec::new();
    };
    let hosts = hosts.filter(|hosts| *hosts != keys).map(|keys| Trigger {
        keys,
        is_implied: true,
    });
    let trigger = Trigger {
        keys,
        is_implied: false,
    };
    std::iter::once(trigger).chain(hosts).collect()
}

/// Returns the hosts of a test for the beginning of URLs, if each value has one.
fn url_host_keys(field: &Field, test: &TextTest) -> Option<Vec<IndexKey>> {
    match &test.kind {
        TextKind::Literal(LiteralTestKind::Exact | LiteralTestKind::Prefix, values)
            if *field == Field::Url && test.form == TextForm::Canonical =>
        {
            keys(values, url_host_key)
        }
        TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..) => None,
    }
}

fn text_keys(field: &Field, test: &TextTest) -> Option<Vec<IndexKey>> {
    if test.form != TextForm::Canonical {
        return None;
    }
    if *field == Field::Crawler {
        return match (&test.kind, test.case) {
            (TextKind::Literal(LiteralTestKind::Exact, values), CaseSensitivity::Sensitive) => {
                keys(values, |name| Some(IndexKey::Crawler(name.into())))
            }
            _ => None,
        };
    }
    if !is_in_url(field) {
        return None;
    }
    match &test.kind {
        TextKind::Literal(LiteralTestKind::Exact, values) if *field == Field::Host => {
            keys(values, host)
        }
        TextKind::Literal(LiteralTestKind::Domain, values) => keys(values, host),
        TextKind::Literal(LiteralTestKind::Surt, values) => {
            keys(values, |surt| surt_host(surt).and_then(|h| host(&h)))
        }
        TextKind::Literal(LiteralTestKind::Exact | LiteralTestKind::Prefix, values)
            if *field == Field::Url =>
        {
            keys(values, url_key)
        }
        TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..) => {
            let literals = RequiredLiterals::of_test(test)?;
            Some(
                literals
                    .iter()
                    .map(|text| IndexKey::Literal(text.into()))
                    .collect(),
            )
        }
    }
}

fn list_keys(field: &Field, list: &PolicyList) -> Option<Vec<IndexKey>> {
    let texts = match &list.items {
        ListItems::Set(items) => items.texts(),
        ListItems::Prefixes(items) => items.texts(),
        ListItems::Patterns(patterns) if patterns.texts().len() <= MAX_KEYS => {
            let mut all = Vec::new();
            for test in patterns.tests() {
                all.append(&mut text_keys(field, test)?);
            }
            return Some(all);
        }
        ListItems::Patterns(_) | ListItems::Networks(_) => return None,
    };
    if texts.len() > MAX_KEYS {
        return None;
    }
    let to_key: fn(&str) -> Option<IndexKey> = match (list.kind, field) {
        (ListKind::Urls | ListKind::UrlPrefixes, Field::Url) => url_key,
        (ListKind::Surts, Field::Url) => |surt| surt_host(surt).and_then(|h| host(&h)),
        // A domain includes its subdomains, as does a key.
        (_, Field::Host) => host,
        (_, Field::Crawler) => |name| Some(IndexKey::Crawler(name.into())),
        (_, field) if field.value_type() == ValueType::Text && is_in_url(field) => literal,
        _ => return None,
    };
    texts.iter().map(to_key).collect()
}

/// Returns `true` if the text of a field is a part of the URL's text.
fn is_in_url(field: &Field) -> bool {
    field.is_url_part() && !matches!(field, Field::Param(_))
}

fn keys(values: &[Box<str>], key: impl Fn(&str) -> Option<IndexKey>) -> Option<Vec<IndexKey>> {
    if values.len() > MAX_KEYS {
        return None;
    }
    values.iter().map(|value| key(value)).collect()
}

fn host(name: &str) -> Option<IndexKey> {
    (!name.is_empty()).then(|| IndexKey::Host(name.to_ascii_lowercase().into()))
}

fn literal(text: &str) -> Option<IndexKey> {
    (text.len() >= literals::MIN_LENGTH)
        .then(|| IndexKey::Literal(text.to_ascii_lowercase().into()))
}

/// Returns a key for URLs that begin with a text.
fn url_key(prefix: &str) -> Option<IndexKey> {
    let (_, rest) = prefix.split_once("://")?;
    let whole_authority = rest.split_once('/');
    match whole_authority {
        // A path is rarer than its host.
        Some((_, path)) if !path.is_empty() => literal(prefix),
        Some(_) => url_host_key(prefix),
        None => literal(prefix),
    }
}

/// Returns the key of the host of a URL that has a whole authority.
fn url_host_key(url: &str) -> Option<IndexKey> {
    let (_, rest) = url.split_once("://")?;
    let (authority, _) = rest.split_once('/')?;
    host(authority_host(authority))
}

fn authority_host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, _)) if !authority.ends_with(']') => host,
        Some(_) | None => authority,
    }
}

/// Returns the host or domain of a SURT prefix: `com,example,www,)/` is `www.example.com`,
/// `com,exam` is `com`.
fn surt_host(surt: &str) -> Option<String> {
    let (form, complete) = match surt.split_once(')') {
        Some((form, _)) => (form, true),
        None => (surt, false),
    };
    let Some((labels, _)) = form.rsplit_once(',') else {
        // An address has no commas.
        return complete.then(|| authority_host(form).to_owned());
    };
    Some(labels.rsplit(',').collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile::load;
    use crate::policy::fact::Facts;
    use crate::policy::source::MemoryFileSystem;
    use crate::urls::target::UrlTarget;

    #[test]
    fn surts_name_a_host_or_a_domain() {
        for (surt, expected) in [
            ("com,example,www,)/a", Some("www.example.com")),
            ("com,example,", Some("example.com")),
            ("com,example,:8080)/", Some("example.com")),
            ("com,exam", Some("com")),
            ("com", None),
            ("192.0.2.7)/", Some("192.0.2.7")),
            ("192.0.2.7:81)/", Some("192.0.2.7")),
            ("[::1]:81)/", Some("[::1]")),
            ("[::1])/", Some("[::1]")),
        ] {
            assert_eq!(surt_host(surt).as_deref(), expected, "{surt}");
        }
    }

    #[test]
    fn prefixes_of_urls_name_a_host_or_a_text() {
        let host = |name: &str| Some(IndexKey::Host(name.into()));
        let literal = |text: &str| Some(IndexKey::Literal(text.into()));
        for (prefix, expected) in [
            ("http://a.test/", host("a.test")),
            ("http://a.test:81/", host("a.test")),
            ("http://[::1]:81/", host("[::1]")),
            ("http://a.test/X", literal("http://a.test/x")),
            ("http://a.te", literal("http://a.te")),
            ("h", None),
        ] {
            assert_eq!(url_key(prefix), expected, "{prefix}");
        }
    }

    /// Returns the number of rules that a request evaluates, of 20 that use a list.
    fn evaluated(kind: &str, condition: &str, items: &str, url: &str) -> usize {
        let lists = format!("lists: {{ l: {{ kind: {kind}, items: [{items}] }} }}\n");
        evaluated_of(&lists, |_| condition.to_owned(), url)
    }

    /// Returns the number of rules that a request evaluates, of 20 with these conditions.
    fn evaluated_of(lists: &str, condition: impl Fn(usize) -> String, url: &str) -> usize {
        let rules: String = (0..20)
            .map(|n| format!("  - {{ id: r{n}, when: {} }}\n", condition(n)))
            .collect();
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow }}\n{lists}rules:\n{rules}"
        );
        let files = MemoryFileSystem::new().with_file("p", text);
        let policy = load(&files, "p").unwrap().policy;
        let url = UrlTarget::parse(url).unwrap();
        policy
            .decide(&Facts::for_url(&url))
            .0
            .evaluated_rule_count()
    }

    #[test]
    fn prefixes_are_found_by_the_host_unless_it_has_many_rules() {
        let url = "http://h3.test/p3/x";
        let own_host = |n: usize| format!("{{ url_prefix: 'http://h{n}.test/p/' }}");
        assert_eq!(evaluated_of("", own_host, url), 1);
        let one_host = |n: usize| format!("{{ url_prefix: 'http://h3.test/p{n}/' }}");
        assert_eq!(evaluated_of("", one_host, url), 1);
        let either = |n: usize| {
            format!("{{ any: [{{ url_prefix: 'http://h3.test/p{n}/' }}, {{ host: a{n}.test }}] }}")
        };
        assert_eq!(evaluated_of("", either, url), 1);
    }

    #[test]
    fn short_lists_of_every_kind_rule_out_rules() {
        for (kind, condition, items, inside) in [
            ("domains", "{ in: l }", "b.test, c.test", "http://x.b.test/"),
            ("hosts", "{ in: l }", "b.test, c.test", "http://b.test/"),
            ("urls", "{ in: l }", "'http://b.test/a'", "http://b.test/a"),
            (
                "url_prefixes",
                "{ in: l }",
                "'http://b.test/'",
                "http://b.test/a",
            ),
            ("surts", "{ in: l }", "'test,b,'", "http://b.test/a"),
            ("substrings", "{ in: l }", "/bbb/, ccc", "http://x.test/ccc"),
            (
                "substrings",
                "{ path: { in: l, case: ignore } }",
                "/Bbb/",
                "http://x.test/bbb/",
            ),
            ("globs", "{ in: l }", "'*/bbb/*'", "http://x.test/bbb/"),
            (
                "globs",
                "{ host: { in: l } }",
                "'*.b.test'",
                "http://x.b.test/",
            ),
            (
                "regexes",
                "{ in: l }",
                "'/bbb+/$', 'c+/ccc'",
                "http://x.test/bbb/",
            ),
            (
                "values",
                "{ path: { in: l } }",
                "/bbb, /ccc",
                "http://x.test/bbb",
            ),
            ("values", "{ host: { in: l } }", "B.test", "http://b.test/"),
        ] {
            let outside = "http://www.a.test/aaa?a=a";
            assert_eq!(evaluated(kind, condition, items, outside), 0, "{kind}");
            assert_eq!(evaluated(kind, condition, items, inside), 20, "{kind}");
        }
    }
}
