//! `GET /api/v1/policy`: the active policy with its first rules and their counters.

use std::iter;

use http::StatusCode;
use serde_json::{Map, Value as Json, json};

use crate::clock::Rfc3339;
use crate::metrics::policy::PolicyMetrics;
use crate::pipeline::reload::ReloadAttempt;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::Policy;
use crate::policy::rule::{EnforcementMode, Rule, RuleBody, RuleIndex};
use crate::policy::space::Space;

use super::api_request::{ApiResult, run_blocking};
use super::policy_api::{PolicyApi, attempt_to_json};
use super::response;

/// The option that decides if no rule does.
const DISPOSITION: &str = "disposition";
/// The most rules in the answer. Longer policies are read in parts, from `GET /api/v1/policy/rules`.
const MAX_RULES: usize = 2_000;

impl PolicyApi {
    /// Returns name, revision and files; the first rules in words, with their counters since they were added, and the
    /// number of all; the first disabled rules; the result of the last reload (`null` before the first); and the previously active policy.
    pub(super) async fn show(&self) -> ApiResult {
        let snapshot = self.active_policy.load();
        let last = self.reloads.last_attempt();
        // Describing thousands of rules takes a while.
        let document = run_blocking(move || document(&snapshot, last.as_deref())).await?;
        Ok(response::json(StatusCode::OK, &document))
    }
}

fn document(snapshot: &PolicySnapshot, last: Option<&ReloadAttempt>) -> Json {
    let policy = &snapshot.policy;
    let source = &snapshot.source;
    let all = policy.rules();
    let disabled = all
        .iter()
        .filter(|rule| rule.mode == EnforcementMode::Disabled)
        .take(MAX_RULES);
    let rules = (0..).zip(all.iter().take(MAX_RULES));
    let previous = source.previous.as_ref();
    json!({
        "name": policy.name(),
        "revision": policy.revision(),
        "loaded_at": source.loaded_at.map(|at| Rfc3339(at).to_string()),
        "files": source.files.iter().map(|file| &*file.path).collect::<Vec<_>>(),
        "disposition": disposition_to_json(policy),
        "rules": rules.filter_map(|(index, _)| rule_to_json(snapshot, index)).collect::<Vec<_>>(),
        "rules_total": all.len(),
        "spaces": policy.spaces().all().iter().map(|space| space_to_json(policy, space)).collect::<Vec<_>>(),
        "disabled": disabled.map(|rule| rule.id.as_str()).collect::<Vec<_>>(),
        "last_reload": last.map(attempt_to_json),
        "previous": previous.map(|previous| json!({ "name": previous.name, "revision": previous.revision })),
    })
}

/// Returns the decision if no rule decides.
pub(super) fn disposition_to_json(policy: &Policy) -> Option<Json> {
    policy.base_value(DISPOSITION).map(|value| value.to_json())
}

/// Returns a rule in words, with its counters.
pub(super) fn rule_to_json(snapshot: &PolicySnapshot, index: u32) -> Option<Json> {
    let policy = &snapshot.policy;
    let rule = policy.rule(RuleIndex(index))?;
    let parent = |rule: &Rule| rule.parent.and_then(|parent| policy.rule(parent));
    let ancestors = iter::successors(parent(rule), |rule| parent(rule));
    let mode = match rule.mode {
        EnforcementMode::Enforce => "enforce",
        EnforcementMode::Shadow => "shadow",
        EnforcementMode::Disabled => "disabled",
    };
    let kind = match &rule.body {
        RuleBody::Filter(_) => "filter",
        RuleBody::Group(_) => "group",
    };
    let position = snapshot.source.rule_positions.get(index as usize);
    let mut document = json!({
        "id": rule.id.as_str(),
        "about": rule.about,
        "mode": mode,
        "kind": kind,
        "space": space_name(policy, RuleIndex(index)),
        "key": rule.condition_key(),
        "depth": ancestors.count(),
        "parent": rule.parent.and_then(|parent| policy.rule_id(parent)),
        "stage": rule.stage.as_str(),
        "condition": policy.describe_condition(rule),
        "effect": policy.describe_effect(rule),
        "file": position.map(|position| &*position.file),
        "line": position.map(|position| position.line),
    });
    response::extend(&mut document, &counts_to_json(&snapshot.counters, index));
    Some(document)
}

/// Returns the name of the space that a rule is part of.
pub(super) fn space_name(policy: &Policy, rule: RuleIndex) -> Option<&str> {
    let spaces = policy.spaces();
    let space = spaces.get(spaces.for_rule(rule)?)?;
    Some(space.name.as_str())
}

/// Returns the counters of a rule. All are `null` for a rule that is not evaluated, and if nothing is counted.
fn counts_to_json(counters: &PolicyMetrics, index: u32) -> Json {
    let counts = counters.counts(index);
    json!({
        "matched": counts.map(|counts| counts.matched),
        "allowed": counts.map(|counts| counts.allowed),
        "rejected": counts.map(|counts| counts.rejected),
        "decided": counts.map(|counts| counts.decided()),
        "last_match": counts.and_then(|counts| counts.last_match).map(|at| Rfc3339(at).to_string()),
    })
}

fn space_to_json(policy: &Policy, space: &Space) -> Json {
    let options = space.options.iter().map(|option| {
        let path = policy.option_path(option.index);
        (path.to_owned(), option.value.to_json())
    });
    json!({
        "name": space.name.as_str(),
        "crawlers": space.crawlers,
        "rules": space.rules.to.saturating_sub(space.rules.from),
        "options": options.collect::<Map<_, _>>(),
    })
}
