//! Building of the index.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::postings::Postings;
use super::trigger::{IndexKey, Trigger, triggers};
use super::{IndexedList, PolicyIndex, ShadowIndex, StageIndex};
use crate::policy::list::PolicyList;
use crate::policy::rule::{
    ChildOrder, EnforcementMode, PolicyStage, Rule, RuleBody, RuleIndex, StageSet,
};
use crate::policy::shadow::outermost_shadow_rules;
use crate::policy::space::{GlobalSpace, RuleRange, Spaces};

/// Builds the index of a policy. Lists with fewer rules than `shortest_list` are left out.
pub(crate) fn build(
    rules: &[Rule],
    spaces: &Spaces,
    lists: &[PolicyList],
    shortest_list: usize,
) -> PolicyIndex {
    let builder = Builder {
        rules,
        lists,
        shadow_stages: shadow_stages(rules),
        shortest_list,
    };
    let candidates = builder.lists_to_index(spaces);
    let mut index = PolicyIndex::default();
    for (stage, slot) in PolicyStage::ALL.into_iter().zip(&mut index.stages) {
        *slot = builder.stage_index(stage, &candidates);
    }
    index.shadow_rules = builder.shadow_index();
    index
}

struct Builder<'a> {
    rules: &'a [Rule],
    lists: &'a [PolicyList],
    /// For each rule, the stages at which a shadow rule in it may act.
    shadow_stages: Vec<StageSet>,
    shortest_list: usize,
}

/// The rules of one list.
struct RuleList {
    parent: Option<RuleIndex>,
    order: ChildOrder,
    rules: Vec<RuleIndex>,
}

impl Builder<'_> {
    /// Returns the lists that have enough rules.
    fn lists_to_index(&self, spaces: &Spaces) -> Vec<RuleList> {
        let global = match spaces.global() {
            GlobalSpace::Rules(range) => Some(range),
            GlobalSpace::Undefined | GlobalSpace::Union => None,
        };
        let top = std::iter::once(spaces.document_rules)
            .chain(spaces.all().iter().map(|space| space.rules))
            .map(|range| (range, ChildOrder::All))
            // A walk of the global space takes the first match.
            .chain(global.map(|range| (range, ChildOrder::First(PolicyStage::Request))));
        let mut found: Vec<RuleList> = top
            .map(|(range, order)| self.list(None, order, range))
            .collect();
        for (rule, at) in self.rules.iter().zip(0..) {
            if let RuleBody::Group(group) = &rule.body {
                let range = RuleRange {
                    from: at + 1,
                    to: rule.end.0,
                };
                found.push(self.list(Some(RuleIndex(at)), group.order, range));
            }
        }
        found.retain(|list| list.rules.len() >= self.shortest_list.max(1));
        found
    }

    fn list(
        &self,
        parent: Option<RuleIndex>,
        order: ChildOrder,
        RuleRange { from, to }: RuleRange,
    ) -> RuleList {
        let mut rules = Vec::new();
        let mut at = from;
        while let Some(rule) = self.rules.get(at as usize).filter(|_| at < to) {
            rules.push(RuleIndex(at));
            at = rule.end.0;
        }
        RuleList {
            parent,
            order,
            rules,
        }
    }

    fn stage_index(&self, stage: PolicyStage, candidates: &[RuleList]) -> StageIndex {
        let mut lists = Vec::new();
        let mut options = Vec::new();
        for list in candidates {
            let Some(first) = list.rules.first() else {
                continue;
            };
            let mut always = Vec::new();
            for at in &list.rules {
                let Some(rule) = self
                    .rule(*at)
                    .filter(|rule| self.may_act(*at, rule, list, stage))
                else {
                    continue;
                };
                let triggers = self.rule_triggers(rule);
                if triggers.is_empty() {
                    always.push(*at);
                } else {
                    options.push((*at, triggers));
                }
            }
            lists.push(IndexedList {
                first: *first,
                parent: list.parent,
                always: always.into(),
            });
        }
        lists.sort_unstable_by_key(|list| list.first);
        match Postings::new(&rarest_keys(options)) {
            Some(postings) => StageIndex {
                postings,
                lists: lists.into(),
            },
            // Too big for an index, so every rule is visited.
            None => StageIndex::default(),
        }
    }

    fn shadow_index(&self) -> Option<ShadowIndex> {
        let roots = outermost_shadow_rules(self.rules);
        if roots.len() < self.shortest_list {
            return None;
        }
        let mut always = Vec::new();
        let mut options = Vec::new();
        for at in roots {
            let triggers = self.rule(at).map(|rule| self.rule_triggers(rule))?;
            if triggers.is_empty() {
                always.push(at);
            } else {
                options.push((at, triggers));
            }
        }
        Some(ShadowIndex {
            postings: Postings::new(&rarest_keys(options))?,
            always: always.into(),
        })
    }

    fn rule(&self, at: RuleIndex) -> Option<&Rule> {
        self.rules.get(at.0 as usize)
    }

    /// Returns `true` if the rule takes part in walks of its list at this stage.
    fn may_act(&self, at: RuleIndex, rule: &Rule, list: &RuleList, stage: PolicyStage) -> bool {
        let of_shadow = self.shadow_stages.get(at.0 as usize);
        let acts = rule.active_stages.contains(stage)
            || of_shadow.is_some_and(|stages| stages.contains(stage))
            // All rules of such a list run at its stage.
            || list.order != ChildOrder::All;
        acts && rule.mode != EnforcementMode::Disabled
    }

    /// Returns triggers for the case that the rule matches. Without any, it may match every request.
    /// The rules in a group act only if the group matches.
    fn rule_triggers(&self, rule: &Rule) -> Vec<Trigger> {
        rule.assertion().map_or_else(Vec::new, |assertion| {
            triggers(assertion.condition, assertion.polarity, self.lists)
        })
    }
}

/// The number of rules on a host up to which they are found by the host alone.
const FEW_RULES: usize = 4;

/// Returns the keys of rules, sorted: of each rule's triggers, the one whose keys are the rarest in
/// the policy. Where a host has few rules, they are found by the host instead of a longer text.
fn rarest_keys(options: Vec<(RuleIndex, Vec<Trigger>)>) -> Vec<(IndexKey, RuleIndex)> {
    let mut uses: HashMap<&IndexKey, usize> = HashMap::with_capacity(options.len());
    for key in options
        .iter()
        .flat_map(|(_, triggers)| triggers)
        .flat_map(|trigger| &trigger.keys)
    {
        *uses.entry(key).or_default() += 1;
    }
    let rarest: Vec<usize> = options
        .iter()
        .map(|(_, triggers)| {
            let cost = |trigger: &Trigger| -> usize {
                let rules: usize = trigger.keys.iter().filter_map(|key| uses.get(key)).sum();
                if !trigger.is_implied {
                    rules
                } else if rules <= FEW_RULES {
                    0
                } else {
                    usize::MAX
                }
            };
            let best = triggers
                .iter()
                .enumerate()
                .min_by_key(|(_, trigger)| (cost(trigger), Reverse(trigger.strength())));
            best.map_or(0, |(at, _)| at)
        })
        .collect();
    let mut rules_by_key: Vec<(IndexKey, RuleIndex)> = Vec::with_capacity(options.len());
    for ((rule, mut triggers), best) in options.into_iter().zip(rarest) {
        let keys = triggers.swap_remove(best).keys;
        rules_by_key.extend(keys.into_iter().map(|key| (key, rule)));
    }
    rules_by_key.sort_unstable();
    rules_by_key.dedup();
    rules_by_key
}

/// Returns, for each rule, the stages at which a shadow rule in it may act.
fn shadow_stages(rules: &[Rule]) -> Vec<StageSet> {
    let mut stages = vec![StageSet::default(); rules.len()];
    for rule in rules {
        if rule.mode != EnforcementMode::Shadow {
            continue;
        }
        let mut around = rule.parent;
        while let Some(at) = around {
            if let Some(set) = stages.get_mut(at.0 as usize) {
                set.insert_all(rule.active_stages);
            }
            around = rules.get(at.0 as usize).and_then(|rule| rule.parent);
        }
    }
    stages
}
