//! A dry run as a JSON object: what the running proxy would do with a request now, and what was not asked.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value as Json, json};

use crate::clock::Rfc3339;
use crate::ledger::record::UnixMillis;
use crate::model::profile::{Conditional, Profile, WireResponse};
use crate::model::reason::Reason;
use crate::model::rule_id::RuleId;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::request::dry_run::{
    DryRun, DryRunAddressSource, DryRunAddresses, DryRunEnd, DryRunLedger, DryRunLedgerSource,
    DryRunRobots, NotAsked, PaceForecast,
};
use crate::policy::fact::LedgerPresence;

/// Returns the member `wire` of an explanation: the verdict with its cause, what each stage found, and `not_asked`.
pub fn to_json(run: &DryRun, profile: Profile) -> Json {
    let (refusal, held_for) = match &run.end {
        DryRunEnd::Sent | DryRunEnd::RobotsTxtServed => (None, None),
        DryRunEnd::Refused { refusal, held_for } => (Some(&**refusal), *held_for),
    };
    let policy = &run.snapshot.policy;
    let status = refusal.and_then(|refusal| match refusal.to_wire(profile, Conditional::No) {
        WireResponse::Status(status) => Some(status),
        WireResponse::Close => None,
    });
    json!({
        "verdict": if refusal.is_some() { "reject" } else { "allow" },
        "summary": summary(run),
        "stage": refusal.map(|refusal| refusal.stage.as_str()),
        "reason": refusal.map(|refusal| refusal.reason.as_str()),
        "rule": refusal.and_then(|refusal| refusal.rule.as_ref()).map(RuleId::as_str),
        "detail": refusal.and_then(|refusal| refusal.detail.as_deref()),
        "status": status,
        "code": refusal.and_then(Refusal::crawl_code),
        "retry_after_s": refusal.and_then(|refusal| refusal.retry_after).map(|time| time.as_secs()),
        "held_ms": held_for.map(millis),
        "rewritten_to": run.is_rewritten.then(|| run.target.as_str()),
        "parent": run.parent.as_deref(),
        "ledger": run.ledger.as_ref().map(ledger_to_json),
        "addresses": run.addresses.as_ref().map(addresses_to_json),
        "robots": run.robots.as_ref().map(|robots| robots_to_json(robots, run)),
        "stop": run.stop.as_ref().and_then(|stop| stop.detail.as_deref()),
        "pace": run.pace.as_ref().map(pace_to_json),
        "not_asked": run.not_asked.iter().map(not_asked_to_json).collect::<Vec<_>>(),
        "policy": policy.name_and_revision(),
    })
}

/// Adds what a dry run has read in the ledger to the facts of its request. The depth there is already the smaller one of that
/// in the ledger and the given one.
pub fn add_ledger_facts(facts: &mut Map<String, Json>, wire: &Json) {
    for key in ["known", "depth"] {
        let value = wire.get("ledger").and_then(|ledger| ledger.get(key));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            facts.insert(key.to_owned(), value.clone());
        }
    }
}

fn ledger_to_json(ledger: &DryRunLedger) -> Json {
    let time = |time: UnixMillis| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(time.0);
        Rfc3339(time).to_string()
    };
    json!({
        "known": ledger.presence == LedgerPresence::Present,
        "source": match ledger.source {
            DryRunLedgerSource::Given => "given",
            DryRunLedgerSource::Ledger => "ledger",
        },
        "depth": ledger.depth,
        "first_seen": ledger.first_seen.map(time),
        "last_fetched": ledger.last_fetched.map(time),
    })
}

fn addresses_to_json(known: &DryRunAddresses) -> Json {
    let addresses: Vec<String> = known.addresses.iter().map(ToString::to_string).collect();
    let source = match known.source {
        DryRunAddressSource::Given => "given",
        DryRunAddressSource::Known => "known",
        DryRunAddressSource::Resolved => "resolved",
    };
    json!({ "addresses": addresses, "source": source })
}

fn robots_to_json(robots: &DryRunRobots, run: &DryRun) -> Json {
    let DryRunRobots::Known { status, agent, age } = robots else {
        return json!({ "obeyed": false });
    };
    let ruling = status
        .file
        .as_ref()
        .and_then(|file| file.ruling(agent, run.target.path_and_query()));
    let (line, text) = ruling
        .as_ref()
        .and_then(|ruling| ruling.cause.clone())
        .unzip();
    json!({
        "obeyed": true,
        "status": status.status,
        "outcome": status.outcome,
        "http_status": status.http_status,
        "fetched_at": Rfc3339(status.fetched).to_string(),
        "age_ms": millis(*age),
        "fresh_until": Rfc3339(status.fresh_until).to_string(),
        "agent": agent,
        "allow": ruling.as_ref().map(|ruling| ruling.allow),
        "line": line,
        "rule": text,
        "group": ruling.and_then(|ruling| ruling.group),
    })
}

fn pace_to_json(forecast: &PaceForecast) -> Json {
    let turn = &forecast.turn;
    json!({
        "paced_as": &*turn.limiter,
        "wait_ms": millis(turn.wait),
        "ahead": turn.ahead,
        "max_wait_ms": millis(turn.max_wait),
        "resting": turn.backoff.map(|(rest, why)| json!({ "for_ms": millis(rest), "why": why })),
    })
}

fn not_asked_to_json(question: &NotAsked) -> Json {
    json!({ "subject": question.subject.as_str(), "why": question.why })
}

/// Returns the verdict in one sentence: `refused by robots.txt, line 2, cached 5 min ago`.
fn summary(run: &DryRun) -> String {
    match &run.end {
        DryRunEnd::Sent => sent_sentence(run),
        DryRunEnd::RobotsTxtServed => "answered with the cached robots.txt".to_owned(),
        DryRunEnd::Refused { refusal, held_for } => {
            let held = held_for
                .filter(|time| !time.is_zero())
                .map_or(String::new(), |time| {
                    format!(", after being held for up to {}", round_duration(time))
                });
            format!("{}{held}", refusal_sentence(refusal, run))
        }
    }
}

fn sent_sentence(run: &DryRun) -> String {
    let wait = run.pace.as_ref().map(|pace| pace.turn.wait);
    let mut sentence = match wait.filter(|wait| !wait.is_zero()) {
        Some(wait) => format!("sent in about {}", round_duration(wait)),
        None => "sent at once".to_owned(),
    };
    if !run.not_asked.is_empty() {
        let subjects: Vec<&str> = run
            .not_asked
            .iter()
            .map(|question| question.subject.as_str())
            .collect();
        sentence = format!(
            "{sentence}, as far as it was asked (not asked: {})",
            subjects.join(", ")
        );
    }
    sentence
}

fn refusal_sentence(refusal: &Refusal, run: &DryRun) -> String {
    let detail = refusal
        .detail
        .as_deref()
        .map_or(String::new(), |detail| format!(": {detail}"));
    match (refusal.robots_cause(), &refusal.rule) {
        (Some(cause), _) => {
            let age = match &run.robots {
                Some(DryRunRobots::Known { age, .. }) => {
                    format!(", cached {} ago", round_duration(*age))
                }
                Some(DryRunRobots::NotObeyed) | None => String::new(),
            };
            format!("refused by robots.txt, line {}{age}", cause.line)
        }
        (None, Some(rule)) if refusal.reason == Reason::Rule => {
            format!("refused by rule {rule}{detail}")
        }
        (None, Some(rule)) => {
            format!(
                "refused by rule {rule}, as {}{detail}",
                refusal.reason.as_str()
            )
        }
        (None, None) if refusal.reason == Reason::Default => {
            format!("refused by the policy's default{detail}")
        }
        (None, None) => format!("refused, as {}{detail}", refusal.reason.as_str()),
    }
}

/// Formats a duration by its largest unit: `1.2 s`, `5 min`, `3 h`, `2 days`.
pub fn round_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=9 => format!("{:.1} s", time.as_secs_f64()),
        10..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns whole milliseconds, rounded up so that a remaining time is never shown as 0.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
