//! Requests for which a rule applies, and others for which it does not, for rules that decide nothing by
//! themselves: those that only set options, and groups of rules.

use std::collections::BTreeMap;

use crawlgate_policy::internal::policy::exact::{
    VerdictAnswer, VerdictFinder, VerdictQuery, WantedVerdict,
};
use serde_json::{Map, Value as Json, json};

use crate::case::compile_draft;
use crate::draft::{
    Condition, GlobalSpaceDraft, GuardDraft, PolicyDraft, RuleDraft, RuleDraftBody, RuleItem,
};

/// The conditions under which each rule is processed, and applies.
pub(crate) struct RuleConditions(BTreeMap<String, Reach>);

struct Reach {
    /// What must hold for it to be processed.
    before: Vec<Condition>,
    /// What it tests.
    own: Condition,
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
                let reach = Reach {
                    is_global: true,
                    ..reach
                };
                (id, reach)
            }));
        }
        Self(found)
    }

    /// Searches requests for which a rule may be processed, and applies or not: the more likely ones first.
    /// `known` are requests of other rules, whose URLs may be allowed.
    pub(crate) fn find(
        &self,
        draft: &PolicyDraft,
        rule: &str,
        applies: bool,
        known: &[(String, Map<String, Json>)],
    ) -> Vec<(String, Map<String, Json>)> {
        let Some(reach) = self.0.get(rule) else {
            return Vec::new();
        };
        let own = if applies {
            reach.own.clone()
        } else {
            reach.own.clone().negated()
        };
        let parts = reach.before.iter().cloned().chain([own]);
        let parts = parts.filter(|part| *part != Condition::Always);
        let parts: Vec<Condition> = parts.collect();
        let condition = if parts.is_empty() {
            Condition::Always
        } else {
            Condition::all(parts)
        };
        let facts = other_facts(&condition);
        let probe = RuleItem::from(RuleDraft::forbid(PROBE, condition));
        let mut with_others = draft.clone();
        with_others.cases.clear();
        with_others.rules.push(probe.clone());
        let mut alone = with_others.clone();
        alone.rules = vec![probe];
        alone.spaces.clear();
        alone.global_space = None;
        let crawler = reach.crawler.as_deref();
        let mut found = Vec::new();
        found.extend(find_refused(&with_others, crawler));
        let by_itself = find_refused(&alone, None);
        let (url, mut details) =
            by_itself.map_or((None, Map::new()), |(url, details)| (Some(url), details));
        if let Some(crawler) = crawler {
            details.insert("crawler".to_owned(), json!(crawler));
        }
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
}

/// The maximum number of other requests whose URLs are tried.
const MAX_KNOWN: usize = 50;

/// Adds a request as it is, and with facts that a condition names and that it does not have.
fn add_variants(
    found: &mut Vec<(String, Map<String, Json>)>,
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
fn add_known_pages(found: &mut Vec<(String, Map<String, Json>)>, url: &str, draft: &PolicyDraft) {
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
fn other_facts(condition: &Condition) -> Vec<(&'static str, &'static str)> {
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

fn mentions(condition: &Condition, field: &str) -> bool {
    match condition {
        Condition::Always => false,
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().any(|part| mentions(part, field))
        }
        Condition::Not(part) => mentions(part, field),
        Condition::Test(test) => test.field == field,
    }
}

/// Searches a request that the probe refuses.
fn find_refused(draft: &PolicyDraft, crawler: Option<&str>) -> Option<(String, Map<String, Json>)> {
    let policy = compile_draft(draft).ok()?.policy;
    let answer = VerdictFinder::new(&policy).find(&VerdictQuery {
        verdict: WantedVerdict::Reject,
        rule: Some(policy.rule_index(PROBE)?),
        under: None,
        crawler,
    });
    match answer {
        VerdictAnswer::Found(example) => Some((example.url, example.details)),
        VerdictAnswer::Never | VerdictAnswer::Undecided(_) => None,
    }
}

fn collect(
    items: &[RuleItem],
    before: &[Condition],
    crawler: Option<&str>,
    first: bool,
    found: &mut BTreeMap<String, Reach>,
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
        let reach = Reach {
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
fn applying(rule: &RuleDraft) -> Condition {
    match &rule.body {
        RuleDraftBody::Group(group) => match &group.guard {
            GuardDraft::Always => Condition::Always,
            GuardDraft::When(condition) => condition.clone(),
            GuardDraft::Unless(condition) => condition.clone().negated(),
        },
        RuleDraftBody::Filter(filter) if filter.forbids => filter.condition.clone(),
        RuleDraftBody::Filter(filter) => filter.condition.clone().negated(),
    }
}
