//! `GET /api/v1/policy`: the active policy, rule by rule, with counters.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::clock::Rfc3339;
use crate::metrics::policy::PolicyMetrics;
use crate::pipeline::reload::ReloadAttempt;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::Policy;
use crate::policy::rule::{EnforcementMode, Rule, RuleBody};
use crate::policy::space::Space;

use super::api_request::run_blocking;
use super::policy_api::{PolicyApi, attempt_to_json};
use super::response;

/// The option that decides if no rule does.
const DISPOSITION: &str = "disposition";

impl PolicyApi {
    /// Returns name, revision and files; each rule in words, with its counters since it was added; the disabled rules;
    /// the result of the last reload (`null` before the first); and the previously active policy.
    pub(super) async fn show(&self) -> Response<Full<Bytes>> {
        let snapshot = self.active_policy.load();
        let last = self.reloads.last_attempt();
        // Describing thousands of rules takes a while.
        match run_blocking(move || document(&snapshot, last.as_deref())).await {
            Some(document) => response::json(StatusCode::OK, &document),
            None => response::internal_error(),
        }
    }
}

fn document(snapshot: &PolicySnapshot, last: Option<&ReloadAttempt>) -> Json {
    let policy = &snapshot.policy;
    let source = &snapshot.source;
    let disabled = policy
        .rules()
        .iter()
        .filter(|rule| rule.mode == EnforcementMode::Disabled);
    let previous = source.previous.as_ref();
    json!({
        "name": policy.name(),
        "revision": policy.revision(),
        "loaded_at": source.loaded_at.map(|at| Rfc3339(at).to_string()),
        "files": source.files.iter().map(|file| &*file.path).collect::<Vec<_>>(),
        "disposition": policy.base_value(DISPOSITION).map(|value| value.to_json()),
        "rules": rules_to_json(snapshot),
        "spaces": policy.spaces().all().iter().map(|space| space_to_json(policy, space)).collect::<Vec<_>>(),
        "disabled": disabled.map(|rule| rule.id.as_str()).collect::<Vec<_>>(),
        "last_reload": last.map(attempt_to_json),
        "previous": previous.map(|previous| json!({ "name": previous.name, "revision": previous.revision })),
    })
}

fn rules_to_json(snapshot: &PolicySnapshot) -> Vec<Json> {
    let rules = snapshot.policy.rules();
    let mut depths: Vec<usize> = Vec::with_capacity(rules.len());
    for rule in rules {
        // Parents come before their children.
        let parent = rule.parent.and_then(|parent| depths.get(parent.0 as usize));
        depths.push(parent.map_or(0, |depth| depth + 1));
    }
    rules
        .iter()
        .zip(depths)
        .zip(0..)
        .map(|((rule, depth), index)| rule_to_json(snapshot, rule, depth, index))
        .collect()
}

fn rule_to_json(snapshot: &PolicySnapshot, rule: &Rule, depth: usize, index: u32) -> Json {
    let policy = &snapshot.policy;
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
        "key": rule.condition_key(),
        "depth": depth,
        "parent": rule.parent.and_then(|parent| policy.rule_id(parent)),
        "stage": rule.stage.as_str(),
        "condition": policy.describe_condition(rule),
        "effect": policy.describe_effect(rule),
        "file": position.map(|position| &*position.file),
        "line": position.map(|position| position.line),
    });
    response::extend(&mut document, &counts_to_json(&snapshot.counters, index));
    document
}

/// Returns the counters of a rule. All are `null` for a rule that is not evaluated, and for one that is counted together
/// with others.
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
