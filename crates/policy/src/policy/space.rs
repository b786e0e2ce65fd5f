//! Crawl spaces: rules and options for a crawler, or a group of them (policy.md section 6).
//!
//! Their rules stand in the policy's flat list, behind the document's: a space is a stretch of it.

use crate::model::rule_id::Slug;

use super::options::{Assignment, OptionSlot, OptionValue};
use super::rule::RuleIndex;

/// A space's place in [`Spaces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceIndex(pub u16);

/// A stretch of the policy's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleRange {
    /// The first rule.
    pub from: u32,
    /// The place behind the last.
    pub to: u32,
}

impl RuleRange {
    /// Whether a rule stands in it.
    pub fn contains(self, rule: RuleIndex) -> bool {
        (self.from..self.to).contains(&rule.0)
    }
}

/// One space.
#[derive(Debug)]
pub struct Space {
    /// Its name.
    pub name: Slug,
    /// Who is in it; nobody: all that are in no other.
    pub crawlers: Box<[Box<str>]>,
    /// Its rules.
    pub rules: RuleRange,
    /// Its options, assigned behind the document's and before any rule.
    pub options: Box<[Assignment]>,
    /// What explain says of an option that it sets: `spaces.news.options`.
    pub(crate) options_path: Box<str>,
}

impl Space {
    /// The value that its options give.
    pub(crate) fn value(&self, slot: OptionSlot) -> Option<&OptionValue> {
        self.options
            .iter()
            .rev()
            .find(|option| option.slot == slot)
            .map(|option| &option.value)
    }
}

/// What is asked, beside the crawler's own space, for the code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalSpace {
    /// There is none.
    Undefined,
    /// `union`: all that some space allows.
    Union,
    /// These rules, of which the first that applies decides; none of them is a refusal.
    Rules(RuleRange),
}

/// The spaces of a policy.
#[derive(Debug)]
pub struct Spaces {
    /// The document's own rules, which run for every crawler.
    pub(crate) document_rules: RuleRange,
    /// In the order of the policy.
    pub(crate) all: Box<[Space]>,
    /// Which space a crawler is in, sorted by its name.
    pub(crate) space_by_crawler: Box<[(Box<str>, SpaceIndex)]>,
    /// The space of all other crawlers.
    pub(crate) fallback: Option<SpaceIndex>,
    pub(crate) global: GlobalSpace,
}

impl Spaces {
    /// The space of a crawler, if it is in one.
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

    /// A space.
    pub fn get(&self, space: SpaceIndex) -> Option<&Space> {
        self.all.get(usize::from(space.0))
    }

    /// Every space, in the order of the policy.
    pub fn all(&self) -> &[Space] {
        &self.all
    }

    /// The global space.
    pub fn global(&self) -> GlobalSpace {
        self.global
    }

    /// Whether a rule runs for crawlers of a space, or of none.
    pub fn runs_rule(&self, rule: RuleIndex, space: Option<SpaceIndex>) -> bool {
        let own = space
            .and_then(|space| self.get(space))
            .is_some_and(|space| space.rules.contains(rule));
        own || self.document_rules.contains(rule)
    }
}
