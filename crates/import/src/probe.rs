//! Requests for which a rule applies, and others for which it does not, for rules that decide nothing by
//! themselves: those that only set options, and groups of rules.

use std::collections::BTreeMap;

use crawlgate_policy::internal::policy::exact::{
    VerdictAnswer, VerdictFinder, VerdictQuery, WantedVerdict,
};
use serde_json::{Map, Value as Json, json};

use crate::case::compile_draft;
use crate::draft::{Condition, GuardDraft, PolicyDraft, RuleDraft, RuleDraftBody, RuleItem};

/// The conditions under which each rule is processed, and applies.
pub(crate) struct RuleConditions(BTreeMap<String, Reach>);

struct Reach {
    /// What must hold for it to be processed.
    before: Vec<Condition>,
    /// What it tests.
    own: Condition,
    /// A crawler of its space.
    crawler: Option<String>,
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
        Self(found)
    }

    /// Searches a request for which a rule is processed, and applies or not. Requests that no other filter
    /// refuses come first.
    pub(crate) fn find(
        &self,
        draft: &PolicyDraft,
        rule: &str,
        applies: bool,
    ) -> Option<(String, Map<String, Json>)> {
        let reach = self.0.get(rule)?;
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
        let probe = RuleItem::from(RuleDraft::forbid(PROBE, condition));
        let mut with_others = draft.clone();
        with_others.cases.clear();
        with_others.rules.push(probe.clone());
        let mut alone = with_others.clone();
        alone.rules = vec![probe];
        alone.spaces.clear();
        alone.global_space = None;
        let crawler = reach.crawler.as_deref();
        find_refused(&with_others, crawler).or_else(|| {
            let (url, mut details) = find_refused(&alone, None)?;
            if let Some(crawler) = crawler {
                details.insert("crawler".to_owned(), json!(crawler));
            }
            Some((url, details))
        })
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
