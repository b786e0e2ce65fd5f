//! The index of the rules: which of them a URL cannot rule out.
//!
//! A rule whose condition needs a host, a text in the URL or a crawler has no effect on requests
//! without it. The index finds the rules that are left, its candidates, in a time that does not grow
//! with the number of rules. It only proves that a rule has no effect; the evaluator decides about
//! the candidates as if there were no index.

mod build;
mod postings;
mod trigger;

use smallvec::SmallVec;

use super::Policy;
use super::fact::{EvaluationTarget, Facts};
use super::rule::{PolicyStage, Rule, RuleIndex, StageSet};
use postings::Postings;

pub(crate) use build::build;

/// The number of rules from which on a list of rules is indexed. Evaluating fewer is faster.
pub(crate) const SHORTEST_INDEXED_LIST: usize = 16;

/// The index of a policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyIndex {
    /// For each stage, the index of the rules that may act there.
    stages: [StageIndex; PolicyStage::ALL.len()],
    /// The outermost shadow rules, if there are many.
    shadow_rules: Option<ShadowIndex>,
}

/// The outermost shadow rules by what their own conditions need.
#[derive(Debug)]
struct ShadowIndex {
    postings: Postings,
    /// The rules that no URL and no crawler rules out.
    always: Box<[RuleIndex]>,
}

/// The index of the rules that may act at a stage.
#[derive(Debug, Default)]
struct StageIndex {
    /// The rules of all indexed lists, by what their conditions need.
    postings: Postings,
    /// The indexed lists, sorted by their first rule. Lists that are not here are short.
    lists: Box<[IndexedList]>,
}

/// A list of rules in the index: the rules of the document, of a space or in a group.
#[derive(Debug)]
struct IndexedList {
    /// The first rule of the list.
    first: RuleIndex,
    /// The group around the list.
    parent: Option<RuleIndex>,
    /// The rules that no URL and no crawler rules out, sorted.
    always: Box<[RuleIndex]>,
}

/// The keys of a rule.
#[derive(Clone, Copy, Debug, Default)]
struct RuleKeys {
    /// The stages at which it has keys.
    stages: StageSet,
    /// The number of rules that have the most frequent of its keys.
    most_rules: usize,
}

pub(super) type FoundRules = SmallVec<[RuleIndex; 16]>;

/// The rules that a walk at one stage visits: the candidates of indexed lists, and all rules of the
/// others.
pub(super) struct Candidates<'a> {
    policy: &'a Policy,
    facts: &'a Facts<'a>,
    /// `None` if every rule is visited.
    stage: Option<&'a StageIndex>,
    /// The candidates of all lists, sorted; `None` until an indexed list is reached.
    found: Option<FoundRules>,
}

/// The way in which the rules of a list are visited.
#[derive(Clone, Copy)]
pub(super) struct ListVisit<'a> {
    /// `None`: every rule.
    indexed: Option<&'a IndexedList>,
    end: RuleIndex,
}

impl<'a> Candidates<'a> {
    /// `every_rule`: does not use the index.
    pub(super) fn new(
        policy: &'a Policy,
        stage: PolicyStage,
        facts: &'a Facts<'a>,
        every_rule: bool,
    ) -> Self {
        let stage = match facts.target {
            EvaluationTarget::Url(_) if !every_rule => Some(policy.index.stage(stage)),
            // The index does not know which URLs a tunnel hides.
            EvaluationTarget::Url(_) | EvaluationTarget::Tunnel(_) => None,
        };
        Self {
            policy,
            facts,
            stage,
            found: None,
        }
    }

    /// Begins to visit the rules of a list.
    pub(super) fn list(&mut self, from: RuleIndex, end: RuleIndex) -> ListVisit<'a> {
        let indexed = self
            .stage
            .and_then(|stage| Some((stage, stage.list(from)?)))
            .map(|(stage, list)| {
                self.found
                    .get_or_insert_with(|| stage.postings.find(self.facts));
                list
            });
        ListVisit { indexed, end }
    }

    /// Returns the first rule of the list to visit that is not before `at`, which is the list's
    /// first rule or the end of the rule visited last.
    pub(super) fn next(&self, list: ListVisit<'a>, at: RuleIndex) -> Option<(RuleIndex, &'a Rule)> {
        let at = match list.indexed {
            Some(indexed) => self.next_candidate(indexed, at, list.end)?,
            None => at,
        };
        let rule = self.policy.rule(at).filter(|_| at < list.end)?;
        Some((at, rule))
    }

    /// Returns the first candidate of a list that is not before `at`. The list ends at `end`.
    fn next_candidate(
        &self,
        list: &IndexedList,
        at: RuleIndex,
        end: RuleIndex,
    ) -> Option<RuleIndex> {
        let always = from_rule(&list.always, at).first().copied();
        let found = from_rule(self.found.as_deref().unwrap_or(&[]), at);
        // Between them are candidates of lists inside this one, and after the end those of others.
        let of_list = |rule: &RuleIndex| {
            let rule = self.policy.rule(*rule);
            rule.is_some_and(|rule| rule.parent == list.parent)
        };
        let mut found = found.iter().copied().take_while(|rule| *rule < end);
        let found = found.find(of_list);
        match (always, found) {
            (Some(always), Some(found)) => Some(always.min(found)),
            (always, found) => always.or(found),
        }
    }
}

/// Returns the part of sorted rules that begins with the first one not before `at`.
fn from_rule(rules: &[RuleIndex], at: RuleIndex) -> &[RuleIndex] {
    let from = rules.partition_point(|rule| *rule < at);
    rules.get(from..).unwrap_or(&[])
}

impl Policy {
    /// Builds the index anew, with every list that has so many rules: for tests with small policies.
    #[doc(hidden)]
    pub fn with_lists_indexed_from(self, shortest_list: usize) -> Self {
        let index = build(&self.rules, &self.spaces, &self.lists, shortest_list);
        Self { index, ..self }
    }

    /// Returns the outermost shadow rules whose own condition a request does not rule out, in
    /// document order.
    pub(super) fn shadow_candidates(&self, facts: &Facts<'_>) -> FoundRules {
        let index = self.index.shadow_rules.as_ref();
        // Each reading of a URL may meet other conditions.
        let index = index
            .filter(|_| matches!(facts.target, EvaluationTarget::Url(url) if !url.has_readings()));
        let Some(index) = index else {
            return FoundRules::from_slice(&self.shadow_rules);
        };
        let mut found = index.postings.find(facts);
        found.extend_from_slice(&index.always);
        found.sort_unstable();
        found
    }
}

impl PolicyIndex {
    /// Returns, for each rule, the number of rules that a request visits together with it, since they
    /// have the same key or are in the same group; `None` if every request visits it.
    pub(crate) fn visited_together(&self, rules: &[Rule]) -> Vec<Option<usize>> {
        let mut keys = vec![RuleKeys::default(); rules.len()];
        for (stage, index) in PolicyStage::ALL.into_iter().zip(&self.stages) {
            for of_key in index.postings.rules_of_keys() {
                for at in of_key {
                    if let Some(keys) = keys.get_mut(at.0 as usize) {
                        keys.stages.insert(stage);
                        keys.most_rules = keys.most_rules.max(of_key.len());
                    }
                }
            }
        }
        let mut together: Vec<Option<usize>> = Vec::with_capacity(rules.len());
        for (rule, keys) in rules.iter().zip(keys) {
            let has_keys = PolicyStage::ALL
                .into_iter()
                .all(|stage| keys.stages.contains(stage) || !rule.active_stages.contains(stage));
            let of_group = || {
                let parent = rule.parent?.0 as usize;
                let in_group = (rules.get(parent)?.end.0 as usize).saturating_sub(parent);
                let with_group = (*together.get(parent)?)?;
                Some(with_group.saturating_mul(in_group))
            };
            together.push(if has_keys {
                Some(keys.most_rules)
            } else {
                of_group()
            });
        }
        together
    }

    fn stage(&self, stage: PolicyStage) -> &StageIndex {
        let [request, destination, response, document] = &self.stages;
        match stage {
            PolicyStage::Request => request,
            PolicyStage::Destination => destination,
            PolicyStage::Response => response,
            PolicyStage::Document => document,
        }
    }
}

impl StageIndex {
    fn list(&self, first: RuleIndex) -> Option<&IndexedList> {
        let at = self
            .lists
            .binary_search_by_key(&first, |list| list.first)
            .ok()?;
        self.lists.get(at)
    }
}
