//! Named sets of values: the key `lists` of a policy.

pub mod texts;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::model::words::words;

use super::field::Field;
use super::pattern::{TextTest, to_surt};
use texts::{PackedTexts, SortedTexts, TextSet};

words! {
    /// The kind of a list: the field that it is compared with, and the comparison.
    pub enum ListKind {
        /// The host is an item or a subdomain of one.
        Domains = "domains",
        /// The host is an item.
        Hosts = "hosts",
        /// The URL is an item.
        Urls = "urls",
        /// The URL begins with an item.
        UrlPrefixes = "url_prefixes",
        /// The SURT form of the URL begins with an item.
        Surts = "surts",
        /// The URL contains an item.
        Substrings = "substrings",
        /// The URL matches a glob.
        Globs = "globs",
        /// The URL matches a regular expression.
        Regexes = "regexes",
        /// The address is in an item.
        Addresses = "addresses",
        /// Any text equals an item.
        Values = "values",
    }
}

/// A named set, compiled for lookups.
#[derive(Debug, PartialEq)]
pub struct PolicyList {
    pub name: Box<str>,
    pub kind: ListKind,
    pub items: ListItems,
}

impl PolicyList {
    /// Returns `true` if a text of a field is in the list. The list's own comparison applies only
    /// to the field of its kind; other fields are compared for equality.
    pub fn matches(&self, field: &Field, text: &str) -> bool {
        match (self.kind, field) {
            (ListKind::Domains, Field::Host) => self.items.has_parent_of(text),
            (ListKind::UrlPrefixes, Field::Url) => self.items.has_prefix_of(text),
            (ListKind::Surts, Field::Url) => {
                to_surt(text).is_some_and(|s| self.items.has_prefix_of(&s))
            }
            _ => self.items.contains(text),
        }
    }
}

/// The items of a list, in the structure that its kind needs.
#[derive(Debug, PartialEq)]
pub enum ListItems {
    /// For exact lookups, including those of a host's parent domains.
    Set(TextSet),
    /// For prefixes: sorted, and no item is a prefix of another, so that one binary search
    /// suffices.
    Prefixes(SortedTexts),
    /// For addresses: sorted, and no network overlaps another, so that one binary search suffices.
    Networks(Box<[IpNet]>),
    /// For substrings, globs and regular expressions.
    Patterns(ListPatterns),
}

/// Items that are compared like the values of a condition.
#[derive(Debug)]
pub struct ListPatterns {
    texts: PackedTexts,
    tests: Box<[TextTest]>,
}

/// Compares the items as written.
impl PartialEq for ListPatterns {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

impl ListPatterns {
    pub(crate) fn new(texts: PackedTexts, tests: Box<[TextTest]>) -> Self {
        Self { texts, tests }
    }

    /// The items as written.
    pub fn texts(&self) -> &PackedTexts {
        &self.texts
    }

    /// The tests of which a text passes one if it matches an item.
    pub fn tests(&self) -> &[TextTest] {
        &self.tests
    }

    fn matches(&self, text: &str) -> bool {
        self.tests.iter().any(|test| test.matches(text))
    }
}

impl ListItems {
    pub fn empty() -> Self {
        Self::Prefixes(SortedTexts::default())
    }

    /// Creates a list of networks, merged so that none overlaps another.
    pub fn from_networks(networks: Vec<IpNet>) -> Self {
        Self::Networks(IpNet::aggregate(&networks).into())
    }

    /// Creates a list of texts for exact lookups.
    pub fn from_texts(items: PackedTexts) -> Self {
        Self::Set(TextSet::new(items))
    }

    /// Creates a list of prefixes.
    pub fn from_prefixes(items: &PackedTexts) -> Self {
        Self::Prefixes(SortedTexts::new(items))
    }

    /// Returns the first item that is a text.
    pub fn first_text(&self) -> Option<&str> {
        match self {
            Self::Set(set) => set.texts().get(0),
            Self::Prefixes(items) => items.texts().get(0),
            Self::Patterns(patterns) => patterns.texts.get(0),
            Self::Networks(_) => None,
        }
    }

    /// Returns `true` if the text is an item, or matches one that is a pattern.
    pub fn contains(&self, text: &str) -> bool {
        match self {
            Self::Set(set) => set.contains(text),
            Self::Prefixes(items) => items.contains(text),
            Self::Patterns(patterns) => patterns.matches(text),
            Self::Networks(_) => false,
        }
    }

    /// Returns `true` if the text begins with an item.
    pub fn has_prefix_of(&self, text: &str) -> bool {
        match self {
            Self::Prefixes(items) => items.has_prefix_of(text),
            Self::Set(set) => set.texts().iter().any(|item| text.starts_with(item)),
            Self::Networks(_) | Self::Patterns(_) => false,
        }
    }

    /// Returns `true` if the host is an item or a subdomain of one.
    pub fn has_parent_of(&self, host: &str) -> bool {
        match self {
            Self::Set(set) => set.has_parent_of(host),
            Self::Prefixes(_) | Self::Networks(_) | Self::Patterns(_) => false,
        }
    }

    /// Returns `true` if the address is in one of the networks.
    pub fn contains_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Networks(networks) => {
                let after = networks.partition_point(|n| n.network() <= address);
                let nearest = after.checked_sub(1).and_then(|at| networks.get(at));
                nearest.is_some_and(|n| n.contains(&address))
            }
            Self::Set(_) | Self::Prefixes(_) | Self::Patterns(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_match_whole_labels() {
        let mut items = PackedTexts::default();
        assert!(items.push("foo.com"));
        let items = ListItems::from_texts(items);
        assert!(items.has_parent_of("foo.com"));
        assert!(items.has_parent_of("a.b.foo.com"));
        assert!(!items.has_parent_of("notfoo.com"));
        assert!(!items.has_parent_of("com"));
        assert!(!items.has_parent_of("foo.com.evil.org"));
    }

    #[test]
    fn networks_are_found_by_one_search() {
        let items = ListItems::from_networks(
            ["10.0.0.0/9", "2001:db8::/32", "10.128.0.0/9", "9.1.0.0/16"]
                .map(|text| text.parse().unwrap())
                .into(),
        );
        for (address, expected) in [
            ("10.200.0.1", true),
            ("9.1.2.3", true),
            ("9.2.0.0", false),
            ("1.1.1.1", false),
            ("11.0.0.0", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(
                items.contains_address(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }
}
