//! Rules by the keys of their triggers: hosts, texts in URLs, crawlers.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use smallvec::SmallVec;

use super::FoundRules;
use super::trigger::IndexKey;
use crate::policy::fact::{EvaluationTarget, Facts};
use crate::policy::list::texts::{PackedTexts, TextSet};
use crate::policy::rule::RuleIndex;

/// Rules by key.
#[derive(Debug, Default)]
pub(super) struct Postings {
    /// By a host or a domain around it.
    hosts: Option<NamedRules>,
    crawlers: Option<NamedRules>,
    literals: Option<LiteralRules>,
}

/// Rules by a name that is looked up as a whole.
#[derive(Debug)]
struct NamedRules {
    names: TextSet,
    rules: RuleLists,
}

/// Rules by a text that occurs in the URL.
#[derive(Debug)]
struct LiteralRules {
    /// Finds the literals, which are in lower case.
    automaton: AhoCorasick,
    rules: RuleLists,
}

/// A list of rules for each number of a key, in one array.
#[derive(Debug)]
struct RuleLists {
    /// The end of each key's rules.
    ends: Box<[u32]>,
    rules: Box<[RuleIndex]>,
}

impl Postings {
    /// Creates the tables from sorted keys; `None` if they would be too big. A rule may have several
    /// keys.
    pub(super) fn new(rules_by_key: &[(IndexKey, RuleIndex)]) -> Option<Self> {
        let groups = || rules_by_key.chunk_by(|(one, _), (other, _)| one == other);
        let named = |select: fn(&IndexKey) -> Option<&str>| {
            let selected = groups().filter_map(|group| Some((select(&group.first()?.0)?, group)));
            NamedRules::new(selected)
        };
        let literals = groups().filter_map(|group| match &group.first()?.0 {
            IndexKey::Literal(text) => Some((&**text, group)),
            IndexKey::Host(_) | IndexKey::Crawler(_) => None,
        });
        Some(Self {
            hosts: named(|key| match key {
                IndexKey::Host(name) => Some(name),
                IndexKey::Literal(_) | IndexKey::Crawler(_) => None,
            })?,
            crawlers: named(|key| match key {
                IndexKey::Crawler(name) => Some(name),
                IndexKey::Host(_) | IndexKey::Literal(_) => None,
            })?,
            literals: LiteralRules::new(literals)?,
        })
    }

    /// Returns the rules of each key.
    pub(super) fn rules_of_keys(&self) -> impl Iterator<Item = &[RuleIndex]> {
        let names = [&self.hosts, &self.crawlers].into_iter().flatten();
        names
            .map(|names| &names.rules)
            .chain(self.literals.iter().map(|literals| &literals.rules))
            .flat_map(RuleLists::iter)
    }

    /// Returns the rules of which a key fits the URL or the crawler, sorted.
    pub(super) fn find(&self, facts: &Facts<'_>) -> FoundRules {
        let mut found = FoundRules::new();
        let EvaluationTarget::Url(target) = facts.target else {
            return found;
        };
        if let Some(hosts) = &self.hosts {
            let mut rest = Some(target.host());
            while let Some(name) = rest {
                found.extend_from_slice(hosts.get(name));
                rest = name.split_once('.').map(|(_, parent)| parent);
            }
        }
        if let Some(crawlers) = &self.crawlers {
            found.extend_from_slice(crawlers.get(facts.crawler));
        }
        if let Some(literals) = &self.literals {
            literals.find(target.as_str(), &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl NamedRules {
    /// Returns `Some(None)` if there are no names, `None` if there are too many.
    fn new<'k>(
        entries: impl Iterator<Item = (&'k str, &'k [(IndexKey, RuleIndex)])>,
    ) -> Option<Option<Self>> {
        let mut names = PackedTexts::default();
        let mut rules = RuleListsBuilder::default();
        for (name, of_name) in entries {
            if !names.push(name) {
                return None;
            }
            rules.push(of_name)?;
        }
        if names.is_empty() {
            return Some(None);
        }
        Some(Some(Self {
            names: TextSet::new(names),
            rules: rules.finish(),
        }))
    }

    fn get(&self, name: &str) -> &[RuleIndex] {
        self.names
            .position(name)
            .map_or(&[], |at| self.rules.get(at))
    }
}

impl LiteralRules {
    /// Returns `Some(None)` if there are no literals, `None` if there are too many.
    fn new<'k>(
        entries: impl Iterator<Item = (&'k str, &'k [(IndexKey, RuleIndex)])>,
    ) -> Option<Option<Self>> {
        let mut literals = Vec::new();
        let mut rules = RuleListsBuilder::default();
        for (literal, of_literal) in entries {
            literals.push(literal);
            rules.push(of_literal)?;
        }
        if literals.is_empty() {
            return Some(None);
        }
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .match_kind(MatchKind::Standard)
            .build(literals);
        Some(Some(Self {
            automaton: automaton.ok()?,
            rules: rules.finish(),
        }))
    }

    fn find(&self, url: &str, found: &mut FoundRules) {
        let mut lower: SmallVec<[u8; 512]> = SmallVec::from_slice(url.as_bytes());
        lower.make_ascii_lowercase();
        let hits = self.automaton.find_overlapping_iter(&lower[..]);
        let mut literals: SmallVec<[u32; 64]> = hits.map(|hit| hit.pattern().as_u32()).collect();
        // A URL may repeat the literal of thousands of rules hundreds of times.
        literals.sort_unstable();
        literals.dedup();
        for literal in literals {
            found.extend_from_slice(self.rules.get(literal as usize));
        }
    }
}

impl RuleLists {
    fn iter(&self) -> impl Iterator<Item = &[RuleIndex]> {
        (0..self.ends.len()).map(|key| self.get(key))
    }

    fn get(&self, key: usize) -> &[RuleIndex] {
        let Some(to) = self.ends.get(key) else {
            return &[];
        };
        let from = key
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .map_or(0, |end| *end);
        self.rules.get(from as usize..*to as usize).unwrap_or(&[])
    }
}

#[derive(Default)]
struct RuleListsBuilder {
    ends: Vec<u32>,
    rules: Vec<RuleIndex>,
}

impl RuleListsBuilder {
    /// Adds the rules of the next key; `None` if there is no room.
    fn push(&mut self, rules: &[(IndexKey, RuleIndex)]) -> Option<()> {
        self.rules.extend(rules.iter().map(|(_, rule)| *rule));
        self.ends.push(u32::try_from(self.rules.len()).ok()?);
        Some(())
    }

    fn finish(self) -> RuleLists {
        RuleLists {
            ends: self.ends.into(),
            rules: self.rules.into(),
        }
    }
}
