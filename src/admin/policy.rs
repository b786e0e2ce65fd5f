//! `GET /api/v1/policy`: the policy in force, rule by rule, with what each did.

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

/// The option that decides where no rule does.
const DISPOSITION: &str = "disposition";

impl PolicyApi {
    /// Name, revision and files, each rule in words with its counters since it is there, what is disabled, how the last
    /// reload went (`null` before the first) and what was in force before.
    pub(super) async fn show(&self) -> Response<Full<Bytes>> {
        let (snapshot, last) = (self.active_policy.load(), self.reloads.last_attempt());
        // Thousands of rules are put into words.
        match run_blocking(move || document(&snapshot, last.as_deref())).await {
            Some(document) => response::json(StatusCode::OK, &document),
            None => response::internal_error(),
        }
    }
}

fn document(snapshot: &PolicySnapshot, last: Option<&ReloadAttempt>) -> Json {
    let (policy, written) = (&snapshot.policy, &snapshot.source);
    let disabled = policy
        .rules()
        .iter()
        .filter(|rule| rule.mode == EnforcementMode::Disabled);
    let before = written.previous.as_ref();
    json!({
        "name": policy.name(),
        "revision": policy.revision(),
        "loaded_at": written.loaded_at.map(|at| Rfc3339(at).to_string()),
        "files": written.files.iter().map(|file| &*file.path).collect::<Vec<_>>(),
        "disposition": policy.base_value(DISPOSITION).map(|value| value.to_json()),
        "rules": rules_to_json(snapshot),
        "spaces": policy.spaces().all().iter().map(|space| space_to_json(policy, space)).collect::<Vec<_>>(),
        "disabled": disabled.map(|rule| rule.id.as_str()).collect::<Vec<_>>(),
        "last_reload": last.map(attempt_to_json),
        "previous": before.map(|before| json!({ "name": before.name, "revision": before.revision })),
    })
}

fn rules_to_json(snapshot: &PolicySnapshot) -> Vec<Json> {
    let rules = snapshot.policy.rules();
    let mut depths: Vec<usize> = Vec::with_capacity(rules.len());
    for rule in rules {
        // Parents stand before their children.
        let above = rule.parent.and_then(|parent| depths.get(parent.0 as usize));
        depths.push(above.map_or(0, |depth| depth + 1));
    }
    let each = rules.iter().zip(depths).zip(0..);
    each.map(|((rule, depth), at)| rule_to_json(snapshot, rule, depth, at))
        .collect()
}

fn rule_to_json(snapshot: &PolicySnapshot, rule: &Rule, depth: usize, at: u32) -> Json {
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
    let place = snapshot.source.rule_positions.get(at as usize);
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
        "file": place.map(|place| &*place.file),
        "line": place.map(|place| place.line),
    });
    response::extend(&mut document, &counts_to_json(&snapshot.counters, at));
    document
}

/// All of it `null` for a rule that takes no part, and for one that is counted together with others.
fn counts_to_json(counters: &PolicyMetrics, at: u32) -> Json {
    let counts = counters.counts(at);
    json!({
        "matched": counts.map(|counts| counts.matched),
        "allowed": counts.map(|counts| counts.allowed),
        "rejected": counts.map(|counts| counts.rejected),
        "decided": counts.map(|counts| counts.decided()),
        "last_match": counts.and_then(|counts| counts.last_match).map(|at| Rfc3339(at).to_string()),
    })
}

fn space_to_json(policy: &Policy, space: &Space) -> Json {
    let options = space.options.iter();
    let options = options.map(|given| {
        (
            policy.option_path(given.slot).to_owned(),
            given.value.to_json(),
        )
    });
    json!({
        "name": space.name.as_str(),
        "crawlers": space.crawlers,
        "rules": space.rules.to.saturating_sub(space.rules.from),
        "options": options.collect::<Map<_, _>>(),
    })
}
