//! Named sets for big data: `lists:` of a policy (policy.md section 1).

pub mod texts;

use std::net::IpAddr;

use ipnet::IpNet;

use super::field::Field;
use super::pattern::to_surt;
use texts::{PackedTexts, SortedTexts, TextSet};

/// Which field a list is compared with, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// The host is an item or a subdomain of one.
    Domains,
    /// The host is an item.
    Hosts,
    /// The URL is an item.
    Urls,
    /// The URL begins with an item.
    UrlPrefixes,
    /// The SURT form of the URL begins with an item.
    Surts,
    /// The address is in an item.
    Addresses,
    /// Any text equals an item.
    Values,
}

impl ListKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Domains,
        Self::Hosts,
        Self::Urls,
        Self::UrlPrefixes,
        Self::Surts,
        Self::Addresses,
        Self::Values,
    ];

    /// The word used in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Domains => "domains",
            Self::Hosts => "hosts",
            Self::Urls => "urls",
            Self::UrlPrefixes => "url_prefixes",
            Self::Surts => "surts",
            Self::Addresses => "addresses",
            Self::Values => "values",
        }
    }
}

/// A named set, ready to be asked.
#[derive(Debug, PartialEq)]
pub struct PolicyList {
    /// The name in the policy.
    pub name: Box<str>,
    /// How it is compared.
    pub kind: ListKind,
    /// The items.
    pub items: ListItems,
}

impl PolicyList {
    /// Whether a text of a field is in the list. It is compared in its own way only with the field of its kind; else
    /// exactly.
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

/// The items of a list, laid out for the questions that its kind is asked.
#[derive(Debug, PartialEq)]
pub enum ListItems {
    /// For exact look-ups and walks over a host's parents.
    Set(TextSet),
    /// For prefixes: sorted, and no item is a prefix of another, so that one binary search answers.
    Prefixes(SortedTexts),
    /// For addresses: sorted, and no network overlaps another, so that one binary search answers.
    Networks(Box<[IpNet]>),
}

impl ListItems {
    /// No items at all.
    pub fn empty() -> Self {
        Self::Prefixes(SortedTexts::default())
    }

    /// Merges networks, so that none overlaps another.
    pub fn from_networks(networks: Vec<IpNet>) -> Self {
        Self::Networks(IpNet::aggregate(&networks).into())
    }

    /// Items that are looked up whole.
    pub fn from_texts(items: PackedTexts) -> Self {
        Self::Set(TextSet::new(items))
    }

    /// Items that a text may begin with.
    pub fn from_prefixes(items: &PackedTexts) -> Self {
        Self::Prefixes(SortedTexts::new(items))
    }

    /// Any item that is a text.
    pub fn first_text(&self) -> Option<&str> {
        match self {
            Self::Set(set) => set.texts().get(0),
            Self::Prefixes(items) => items.texts().get(0),
            Self::Networks(_) => None,
        }
    }

    /// Whether the text is an item.
    pub fn contains(&self, text: &str) -> bool {
        match self {
            Self::Set(set) => set.contains(text),
            Self::Prefixes(items) => items.contains(text),
            Self::Networks(_) => false,
        }
    }

    /// Whether the text begins with an item.
    pub fn has_prefix_of(&self, text: &str) -> bool {
        match self {
            Self::Prefixes(items) => items.has_prefix_of(text),
            Self::Set(set) => set.texts().iter().any(|item| text.starts_with(item)),
            Self::Networks(_) => false,
        }
    }

    /// Whether the host is an item or a subdomain of one: one look-up a label.
    pub fn has_parent_of(&self, host: &str) -> bool {
        let mut rest = host;
        loop {
            if self.contains(rest) {
                return true;
            }
            match rest.split_once('.') {
                Some((_, parent)) => rest = parent,
                None => return false,
            }
        }
    }

    /// Whether the address is in one of the networks.
    pub fn contains_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Networks(networks) => {
                let after = networks.partition_point(|n| n.network() <= address);
                let nearest = after.checked_sub(1).and_then(|at| networks.get(at));
                nearest.is_some_and(|n| n.contains(&address))
            }
            Self::Set(_) | Self::Prefixes(_) => false,
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
        let of = |text: &str| text.parse::<IpNet>().unwrap();
        let items = ListItems::from_networks(
            ["10.0.0.0/9", "2001:db8::/32", "10.128.0.0/9", "9.1.0.0/16"]
                .map(of)
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
