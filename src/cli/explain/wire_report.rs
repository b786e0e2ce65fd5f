//! The member `wire` of an explanation as text: the outcome of a request in the running proxy.

use std::time::Duration;

use serde_json::Value as Json;

use crate::cli::admin_client::{get_array, get_or_null, get_str, get_u64};
use crate::cli::text::{ReportText, replace_controls, wrap};
use crate::console::Tone;
use crate::pipeline::request::dry_run::NotAskedSubject;
use crate::report::dry_run::round_duration;

/// Adds the verdict of the proxy below that of the policy.
pub(super) fn write_summary(report: &mut ReportText, wire: &Json) {
    if wire.is_null() {
        return;
    }
    let tone = match get_str(wire, "verdict") {
        "allow" => Tone::Good,
        _ => Tone::Bad,
    };
    let sentence = format!("on the wire: {}", get_str(wire, "summary"));
    for line in wrap(&replace_controls(&sentence), report.width) {
        let line = report.colors.paint(tone, &line);
        report.push_line(&line);
    }
}

/// Adds what each stage of the proxy found, or the stages that were not asked. The last line has the verdict.
pub(super) fn write(report: &mut ReportText, wire: Option<&Json>) {
    match wire {
        None => {
            let subjects = NotAskedSubject::ALL.map(NotAskedSubject::as_str).join(", ");
            report.push_line("");
            let text = format!("Not asked: {subjects} (the running proxy knows them)");
            for line in wrap(&text, report.width) {
                report.push_line(&line);
            }
        }
        Some(Json::Null) => {
            report.push_line("");
            report.push_line("Not asked: a tunnel does not go through the stages of a request");
        }
        Some(wire) => write_stages(report, wire),
    }
}

fn write_stages(report: &mut ReportText, wire: &Json) {
    report.push_headline("On the wire");
    let mut field = |name: &str, value: &str| {
        report.push_line(&format!("  {name:10}  {}", replace_controls(value)));
    };
    if let Some(url) = get_or_null(wire, "rewritten_to").as_str() {
        field("fetches", url);
    }
    let lines = [
        ("owner", other_owner(get_or_null(wire, "owner"))),
        (
            "parent",
            get_or_null(wire, "parent").as_str().map(str::to_owned),
        ),
        ("ledger", ledger(get_or_null(wire, "ledger"))),
        ("addresses", addresses(get_or_null(wire, "addresses"))),
        ("robots.txt", robots(get_or_null(wire, "robots"))),
        (
            "stop",
            get_or_null(wire, "stop").as_str().map(str::to_owned),
        ),
        ("pace", pace(get_or_null(wire, "pace"))),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            field(name, &value);
        }
    }
    for question in get_array(wire, "not_asked") {
        let value = format!(
            "{} ({})",
            get_str(question, "subject"),
            get_str(question, "why")
        );
        field("not asked", &value);
    }
    if let Some(answer) = answer(wire) {
        field("answer", &answer);
    }
    field("policy", get_str(wire, "policy"));
    field("verdict", get_str(wire, "summary"));
}

/// Returns the status and the code of a refusal: `410, crawl-code 760`.
fn answer(wire: &Json) -> Option<String> {
    let status = get_or_null(wire, "status").as_u64()?;
    Some(match get_or_null(wire, "code").as_u64() {
        Some(code) => format!("{status}, crawl-code {code}"),
        None => status.to_string(),
    })
}

/// Returns the owner of the host if it is another node of the fleet.
fn other_owner(owner: &Json) -> Option<String> {
    if get_or_null(owner, "here").as_bool()? {
        return None;
    }
    let node = get_str(owner, "node");
    Some(match get_or_null(owner, "admin").as_str() {
        Some(url) => format!(
            "{node}. Only that node knows the ledger, robots.txt and pace: run explain with --admin {url}"
        ),
        None => format!(
            "{node}. Only that node knows the ledger, robots.txt and pace: run explain with its address as --admin"
        ),
    })
}

/// Returns what is recorded of the URL: `known, first requested 2026-11-21T08:30:00.000Z, depth 2`.
fn ledger(ledger: &Json) -> Option<String> {
    let is_known = get_or_null(ledger, "known").as_bool()?;
    let is_given = get_str(ledger, "source") == "given";
    let mut text = if is_known { "known" } else { "not known" }.to_owned();
    if is_given {
        text.push_str(" (given)");
    }
    for (key, event) in [
        ("first_seen", "first requested"),
        ("last_fetched", "last fetched"),
    ] {
        if let Some(time) = get_or_null(ledger, key).as_str() {
            text.push_str(&format!(", {event} {time}"));
        }
    }
    if let Some(depth) = get_or_null(ledger, "depth").as_u64() {
        text.push_str(&format!(", depth {depth}"));
    }
    Some(text)
}

fn addresses(known: &Json) -> Option<String> {
    let addresses: Vec<&str> = get_array(known, "addresses")
        .iter()
        .filter_map(Json::as_str)
        .collect();
    let source = get_or_null(known, "source").as_str()?;
    Some(format!("{} ({source})", addresses.join(", ")))
}

fn robots(robots: &Json) -> Option<String> {
    if !get_or_null(robots, "obeyed").as_bool()? {
        return Some("ignored, by the policy (robots.obey)".to_owned());
    }
    let access = match get_or_null(robots, "allow").as_bool() {
        Some(true) => "allow",
        Some(false) => "disallow",
        None => get_str(robots, "status"),
    };
    let line = match get_or_null(robots, "line").as_u64() {
        Some(line) => format!(", line {line}: {}", get_str(robots, "rule")),
        None => String::new(),
    };
    let age = round_duration(Duration::from_millis(get_u64(robots, "age_ms")));
    Some(format!(
        "{access}{line}  (agent {}, cached {age} ago)",
        get_str(robots, "agent")
    ))
}

fn pace(pace: &Json) -> Option<String> {
    let limiter = get_or_null(pace, "paced_as").as_str()?;
    let duration = |key| round_duration(Duration::from_millis(get_u64(pace, key)));
    let turn = match get_u64(pace, "wait_ms") {
        0 => "its turn is now".to_owned(),
        _ => format!("its turn is in {}", duration("wait_ms")),
    };
    let ahead = match get_u64(pace, "ahead") {
        0 => String::new(),
        ahead => format!(", {ahead} before it"),
    };
    let resting = get_or_null(pace, "resting");
    let resting = if resting.is_null() {
        String::new()
    } else {
        format!(
            ", the host is left alone for {}: {}",
            round_duration(Duration::from_millis(get_u64(resting, "for_ms"))),
            get_str(resting, "why")
        )
    };
    Some(format!(
        "{turn}{ahead}{resting}  (as {limiter}, held for at most {})",
        duration("max_wait_ms")
    ))
}
