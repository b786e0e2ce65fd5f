//! Requests for which a rule applies, and others for which it does not, for rules that decide nothing by
//! themselves: those that only set options, and groups of rules; and requests for which one test of a rule matters.

use std::collections::BTreeMap;
use std::iter;

use serde_json::{Map, Value as Json, json};

use crate::compile::compile_draft;
use crate::decisive::OtherTest;
use crate::draft::{
    CaseRequest, ConditionDraft, GlobalSpaceDraft, GuardDraft, PolicyDraft, RuleDraft,
    RuleDraftBody, RuleItem,
};
use crate::search::search_refused;

/// The conditions under which each rule is processed, and applies.
#[derive(Default)]
pub(crate) struct RuleConditions {
    rules: BTreeMap<String, RuleReach>,
    /// Conditions for rules to be processed. Each rule of a list shares those of the rules before it.
    chains: Vec<ConditionChain>,
}

/// A condition, and the index of the chain of those that must hold as well.
struct ConditionChain {
    condition: ConditionDraft,
    rest: Option<usize>,
}

struct RuleReach {
    /// The conditions for it to be processed.
    before: Option<usize>,
    /// Its own condition.
    own: ConditionDraft,
    /// A crawler of its space.
    crawler: Option<String>,
    /// It is a rule of the global space, which is evaluated for known URLs that a space refuses.
    is_global: bool,
}

/// The id of the rule that is added to find a request.
const PROBE: &str = "probe-of-the-importer";

impl RuleConditions {
    pub(crate) fn new(draft: &PolicyDraft) -> Self {
        let mut found = Self::default();
        let place = RulePlace::default();
        found.collect(&draft.rules, &place);
        for space in &draft.spaces {
            let crawler = space.crawlers.first().map(String::as_str);
            found.collect(&space.rules, &RulePlace { crawler, ..place });
        }
        if let Some(GlobalSpaceDraft::Rules(rules)) = &draft.global_space {
            let place = RulePlace {
                first: true,
                is_global: true,
                ..place
            };
            found.collect(rules, &place);
        }
        found
    }

    fn collect(&mut self, items: &[RuleItem], place: &RulePlace<'_>) {
        let mut before = place.before;
        for item in items {
            let RuleItem::Rule(rule) = item else {
                continue;
            };
            let own = applying(rule);
            if let RuleDraftBody::Group(group) = &rule.body {
                let inside = RulePlace {
                    before: self.chain(own.clone(), before),
                    first: group.first,
                    ..*place
                };
                self.collect(&group.rules, &inside);
            }
            let reach = RuleReach {
                before,
                own: own.clone(),
                crawler: place.crawler.map(str::to_owned),
                is_global: place.is_global,
            };
            self.rules.insert(rule.id.clone(), reach);
            let ends = matches!(&rule.body, RuleDraftBody::Group(group) if group.stop);
            if place.first || ends {
                before = self.chain(own.negated(), before);
            }
        }
    }

    /// Adds a condition to a chain, and returns the index of the longer one.
    fn chain(&mut self, condition: ConditionDraft, rest: Option<usize>) -> Option<usize> {
        self.chains.push(ConditionChain { condition, rest });
        Some(self.chains.len() - 1)
    }

    /// Returns the condition under which a rule is processed, and another condition holds.
    fn condition(&self, reach: &RuleReach, own: ConditionDraft) -> ConditionDraft {
        let mut parts = Vec::new();
        let mut next = reach.before;
        while let Some(chain) = next.and_then(|at| self.chains.get(at)) {
            parts.push(chain.condition.clone());
            next = chain.rest;
        }
        parts.reverse();
        parts.push(own);
        parts.retain(|part| *part != ConditionDraft::Always);
        if parts.is_empty() {
            ConditionDraft::Always
        } else {
            ConditionDraft::all(parts)
        }
    }

    /// Returns requests for which a rule may be processed, and applies or not: the more likely ones first, each
    /// searched when it is asked for. `known` are requests of other rules, whose URLs may be allowed.
    pub(crate) fn probe(
        &self,
        draft: &PolicyDraft,
        rule: &str,
        applies: bool,
        known: &[CaseRequest],
    ) -> impl Iterator<Item = CaseRequest> {
        let probes = self.rules.get(rule).map(|reach| {
            let own = move || match applies {
                true => reach.own.clone(),
                false => reach.own.clone().negated(),
            };
            let condition = move || self.condition(reach, own());
            let among_others = move || find_among_others(reach, draft, condition());
            let of_urls = move || {
                let condition = condition();
                let alone = find_alone(draft, condition.clone());
                probes_of_urls(reach, draft, &condition, alone, known)
            };
            let among_others = iter::once_with(among_others).flatten();
            among_others.chain(iter::once_with(of_urls).flatten())
        });
        probes.into_iter().flatten()
    }

    /// Returns requests for which a test of a rule holds and another one in its place does not, so that the rule
    /// applies with one of them only: those that are found sooner first.
    pub(crate) fn probe_test<'a>(
        &'a self,
        draft: &'a PolicyDraft,
        other: &'a OtherTest,
        known: &'a [CaseRequest],
    ) -> impl Iterator<Item = CaseRequest> + 'a {
        let probes = self.rules.get(&other.rule).and_then(|reach| {
            let replaced = &other.replaced;
            let mut parts = vec![replaced.test.clone(), replaced.other.clone().negated()];
            parts.extend(replaced.context.iter().cloned());
            let condition = self.condition(reach, ConditionDraft::all(parts));
            // If no URL fits the condition, none does among the other rules.
            let alone = find_alone(draft, condition.clone())?;
            let of_urls = probes_of_urls(reach, draft, &condition, Some(alone), known);
            // A rule that refuses the request itself does not with the other test.
            let among_others = [draft, &other.draft]
                .into_iter()
                .filter_map(move |draft| find_among_others(reach, draft, condition.clone()));
            Some(of_urls.into_iter().chain(among_others))
        });
        probes.into_iter().flatten()
    }
}

/// The place of a list of rules.
#[derive(Clone, Copy, Default)]
struct RulePlace<'d> {
    /// The conditions for the list to be processed.
    before: Option<usize>,
    crawler: Option<&'d str>,
    /// Only the first rule that applies counts.
    first: bool,
    is_global: bool,
}

/// Searches a request that fits a condition, and that no rule of the policy refuses.
fn find_among_others(
    reach: &RuleReach,
    draft: &PolicyDraft,
    condition: ConditionDraft,
) -> Option<CaseRequest> {
    let mut probed = draft.clone();
    probed
        .rules
        .push(RuleDraft::forbid(PROBE, condition).into());
    find_refused(&probed, reach.crawler.as_deref())
}

/// Searches a request that fits a condition, if there were no other rules.
fn find_alone(draft: &PolicyDraft, condition: ConditionDraft) -> Option<CaseRequest> {
    let mut alone = PolicyDraft {
        name: draft.name.clone(),
        options: draft.options.clone(),
        lists: draft.lists.clone(),
        ..PolicyDraft::default()
    };
    alone.rules.push(RuleDraft::forbid(PROBE, condition).into());
    find_refused(&alone, None)
}

/// Returns requests for a URL that was found for a condition, and for URLs that are known, with other facts.
fn probes_of_urls(
    reach: &RuleReach,
    draft: &PolicyDraft,
    condition: &ConditionDraft,
    alone: Option<CaseRequest>,
    known: &[CaseRequest],
) -> Vec<CaseRequest> {
    let (url, mut details) =
        alone.map_or((None, Map::new()), |(url, details)| (Some(url), details));
    if let Some(crawler) = &reach.crawler {
        details.insert("crawler".to_owned(), json!(crawler));
    }
    let facts = other_facts(condition);
    let mut found = Vec::new();
    let known = known.iter().take(MAX_KNOWN).map(|(url, _)| url.as_str());
    for url in url.as_deref().into_iter().chain(known) {
        if reach.is_global {
            add_known_pages(&mut found, url, draft);
        } else {
            add_variants(&mut found, url, &details, &facts);
        }
    }
    found
}

/// The maximum number of other requests whose URLs are tried.
const MAX_KNOWN: usize = 50;

/// Adds a request as it is, and with facts that a condition names and that it does not have.
fn add_variants(
    found: &mut Vec<CaseRequest>,
    url: &str,
    details: &Map<String, Json>,
    facts: &[(&str, &str)],
) {
    found.push((url.to_owned(), details.clone()));
    for (name, value) in facts {
        if !details.contains_key(*name) {
            let mut details = details.clone();
            details.insert((*name).to_owned(), json!(value));
            found.push((url.to_owned(), details));
        }
    }
}

/// Adds requests for a page that each of the crawlers has fetched before.
fn add_known_pages(found: &mut Vec<CaseRequest>, url: &str, draft: &PolicyDraft) {
    for space in &draft.spaces {
        let mut details = Map::new();
        if let Some(crawler) = space.crawlers.first() {
            details.insert("crawler".to_owned(), json!(crawler));
        }
        details.insert("known".to_owned(), json!(true));
        found.push((url.to_owned(), details));
    }
}

/// Values of facts that a condition names, which are known after the request only.
fn other_facts(condition: &ConditionDraft) -> Vec<(&'static str, &'static str)> {
    const FACTS: [(&str, &str); 5] = [
        ("address", "192.0.2.1"),
        ("address", "2001:db8::1"),
        ("content_type", "text/html"),
        ("content_type", "application/octet-stream"),
        ("title", "A"),
    ];
    let facts = FACTS.into_iter();
    facts
        .filter(|(name, _)| mentions(condition, name))
        .collect()
}

fn mentions(condition: &ConditionDraft, field: &str) -> bool {
    match condition {
        ConditionDraft::Always => false,
        ConditionDraft::All(parts) | ConditionDraft::Any(parts) => {
            parts.iter().any(|part| mentions(part, field))
        }
        ConditionDraft::Not(part) => mentions(part, field),
        ConditionDraft::Test(test) => test.field == field,
    }
}

/// Searches a request that the probe refuses.
fn find_refused(draft: &PolicyDraft, crawler: Option<&str>) -> Option<CaseRequest> {
    let policy = compile_draft(draft).ok()?.policy;
    search_refused(&policy, PROBE, crawler)
}

/// Returns the condition under which a rule applies.
fn applying(rule: &RuleDraft) -> ConditionDraft {
    match &rule.body {
        RuleDraftBody::Group(group) => match &group.guard {
            GuardDraft::Always => ConditionDraft::Always,
            GuardDraft::When(condition) => condition.clone(),
            GuardDraft::Unless(condition) => condition.clone().negated(),
        },
        RuleDraftBody::Filter(filter) if filter.forbids => filter.condition.clone(),
        RuleDraftBody::Filter(filter) => filter.condition.clone().negated(),
    }
}
