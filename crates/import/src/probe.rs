//! Requests for which a rule applies, and others for which it does not, for rules that decide nothing by
//! themselves: those that only set options, and groups of rules.

use std::collections::BTreeMap;
use std::iter;

use serde_json::{Map, Value as Json, json};

use crate::compile::compile_draft;
use crate::draft::{
    CaseRequest, ConditionDraft, GlobalSpaceDraft, GuardDraft, PolicyDraft, RuleDraft,
    RuleDraftBody, RuleItem,
};
use crate::search::search_refused;

/// The conditions under which each rule is processed, and applies.
pub(crate) struct RuleConditions(BTreeMap<String, RuleReach>);

struct RuleReach {
    /// The conditions for it to be processed.
    before: Vec<ConditionDraft>,
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
        let mut found = BTreeMap::new();
        collect(&draft.rules, &[], None, false, &mut found);
        for space in &draft.spaces {
            let crawler = space.crawlers.first().map(String::as_str);
            collect(&space.rules, &[], crawler, false, &mut found);
        }
        if let Some(GlobalSpaceDraft::Rules(rules)) = &draft.global_space {
            let mut global = BTreeMap::new();
            collect(rules, &[], None, true, &mut global);
            found.extend(global.into_iter().map(|(id, reach)| {
                let reach = RuleReach {
                    is_global: true,
                    ..reach
                };
                (id, reach)
            }));
        }
        Self(found)
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
        let probes = self.0.get(rule).map(|reach| {
            let among_others = move || find_among_others(reach, draft, reach.condition(applies));
            let of_urls = move || probes_of_urls(reach, draft, &reach.condition(applies), known);
            let among_others = iter::once_with(among_others).flatten();
            among_others.chain(iter::once_with(of_urls).flatten())
        });
        probes.into_iter().flatten()
    }
}

impl RuleReach {
    /// Returns the condition under which the rule is processed, and applies or not.
    fn condition(&self, applies: bool) -> ConditionDraft {
        let own = if applies {
            self.own.clone()
        } else {
            self.own.clone().negated()
        };
        let parts = self.before.iter().cloned().chain([own]);
        let parts: Vec<ConditionDraft> = parts
            .filter(|part| *part != ConditionDraft::Always)
            .collect();
        if parts.is_empty() {
            ConditionDraft::Always
        } else {
            ConditionDraft::all(parts)
        }
    }
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

/// Returns requests for a URL that fits a condition, and for URLs that are known, with other facts.
fn probes_of_urls(
    reach: &RuleReach,
    draft: &PolicyDraft,
    condition: &ConditionDraft,
    known: &[CaseRequest],
) -> Vec<CaseRequest> {
    let mut alone = PolicyDraft {
        name: draft.name.clone(),
        options: draft.options.clone(),
        lists: draft.lists.clone(),
        ..PolicyDraft::default()
    };
    alone
        .rules
        .push(RuleDraft::forbid(PROBE, condition.clone()).into());
    let by_itself = find_refused(&alone, None);
    let (url, mut details) =
        by_itself.map_or((None, Map::new()), |(url, details)| (Some(url), details));
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

fn collect(
    items: &[RuleItem],
    before: &[ConditionDraft],
    crawler: Option<&str>,
    first: bool,
    found: &mut BTreeMap<String, RuleReach>,
) {
    let mut before = before.to_vec();
    for item in items {
        let RuleItem::Rule(rule) = item else {
            continue;
        };
        let own = applying(rule);
        if let RuleDraftBody::Group(group) = &rule.body {
            let mut inside = before.clone();
            inside.push(own.clone());
            collect(&group.rules, &inside, crawler, group.first, found);
        }
        let reach = RuleReach {
            before: before.clone(),
            own: own.clone(),
            crawler: crawler.map(str::to_owned),
            is_global: false,
        };
        found.insert(rule.id.clone(), reach);
        let ends = matches!(&rule.body, RuleDraftBody::Group(group) if group.stop);
        if first || ends {
            before.push(own.negated());
        }
    }
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
