//! Crawl spaces: rules and options for a group of crawlers.
//!
//! Their rules follow the document's in the policy's flat list; a space is a range of it.

use crate::model::rule_id::Slug;

use super::list::PolicyList;
use super::options::{Assignment, OptionIndex, OptionValue};
use super::rule::RuleIndex;

/// The index of a space in [`Spaces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceIndex(pub u16);

/// A range of the policy's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleRange {
    /// The first index.
    pub from: u32,
    /// The index after the last.
    pub to: u32,
}

impl RuleRange {
    /// Returns `true` if a rule is in the range.
    pub fn contains(self, rule: RuleIndex) -> bool {
        (self.from..self.to).contains(&rule.0)
    }
}

/// A crawl space.
#[derive(Debug)]
pub struct Space {
    pub name: Slug,
    /// The names of its crawlers. If there are none, the space is for all crawlers that are in no
    /// other.
    pub crawlers: Box<[Box<str>]>,
    /// The URLs that they start from, if the policy lists them.
    pub(crate) seeds: Option<PolicyList>,
    pub rules: RuleRange,
    /// The options, assigned after the document's and before any rule.
    pub options: Box<[Assignment]>,
    /// The path of the options in explanations: `spaces.news.options`.
    pub(crate) options_path: Box<str>,
}

impl Space {
    /// Returns `true` if a canonical URL is one of the space's seeds.
    pub fn has_seed(&self, url: &str) -> bool {
        self.seeds
            .as_ref()
            .is_some_and(|seeds| seeds.items.contains(url))
    }

    /// The value of an option in this space.
    pub(crate) fn value(&self, index: OptionIndex) -> Option<&OptionValue> {
        self.options
            .iter()
            .rev()
            .find(|option| option.index == index)
            .map(|option| &option.value)
    }
}

/// The global space, which determines the code of a refusal together with the crawler's own space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalSpace {
    /// There is no global space.
    Undefined,
    /// `union`: the URLs that any space allows.
    Union,
    /// Rules of which the first match decides. Without a match the URL is not allowed.
    Rules(RuleRange),
}

/// All spaces of a policy.
#[derive(Debug)]
pub struct Spaces {
    /// The document's own rules, which apply to every crawler.
    pub(crate) document_rules: RuleRange,
    /// The spaces, in the order of the policy.
    pub(crate) all: Box<[Space]>,
    /// The space of each crawler, sorted by the crawler's name.
    pub(crate) space_by_crawler: Box<[(Box<str>, SpaceIndex)]>,
    /// The space of all other crawlers.
    pub(crate) fallback: Option<SpaceIndex>,
    pub(crate) global: GlobalSpace,
}

impl Spaces {
    /// Returns the space of a crawler.
    pub fn for_crawler(&self, crawler: &str) -> Option<SpaceIndex> {
        if self.all.is_empty() {
            return None;
        }
        let found = self
            .space_by_crawler
            .binary_search_by(|(name, _)| (**name).cmp(crawler))
            .ok();
        found
            .and_then(|at| self.space_by_crawler.get(at))
            .map(|(_, space)| *space)
            .or(self.fallback)
    }

    /// Returns a space by its index.
    pub fn get(&self, space: SpaceIndex) -> Option<&Space> {
        self.all.get(usize::from(space.0))
    }

    /// The spaces, in the order of the policy.
    pub fn all(&self) -> &[Space] {
        &self.all
    }

    pub fn global(&self) -> GlobalSpace {
        self.global
    }

    /// Returns the space that a rule is part of; `None` for the document's own rules.
    pub fn for_rule(&self, rule: RuleIndex) -> Option<SpaceIndex> {
        let at = self
            .all
            .iter()
            .position(|space| space.rules.contains(rule))?;
        u16::try_from(at).ok().map(SpaceIndex)
    }

    /// Returns `true` if a rule applies to the crawlers of a space, or to those without a space.
    pub fn runs_rule(&self, rule: RuleIndex, space: Option<SpaceIndex>) -> bool {
        let rules = space
            .and_then(|space| self.get(space))
            .is_some_and(|space| space.rules.contains(rule));
        rules || self.document_rules.contains(rule)
    }
}
