//! `crawlgate status`: the process that answers, its policy, its listeners, and what needs attention.

use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::console::{ConsoleColors, Tone};

use super::Exit;
use super::admin_client::{get_array, get_or_null, get_str, get_u64};
use super::args::{OutputFormat, ProxyReportArgs};
use super::console::{self, report_cannot_run};
use super::running_proxy::RunningProxy;
use super::text::sanitize_text;

pub(super) fn run(args: &ProxyReportArgs) -> Result<Exit, Exit> {
    let proxy = RunningProxy::find(&args.proxy)?;
    let status = proxy
        .get("/api/v1/status")
        .map_err(|error| report_cannot_run(&error))?;
    let text = match args.format {
        OutputFormat::Json => format!("{status:#}\n"),
        OutputFormat::Text => report_text(&proxy, &status, ConsoleColors::for_stdout()),
    };
    Ok(console::print(&text, Exit::Success))
}

fn report_text(proxy: &RunningProxy, status: &Json, colors: ConsoleColors) -> String {
    let ready = match get_or_null(status, "ready").as_bool() {
        Some(true) => colors.paint(Tone::Good, "ready"),
        Some(false) | None => colors.paint(Tone::Bad, "not ready"),
    };
    let uptime = uptime_text(get_u64(status, "uptime_ms") / 1_000);
    let policy = get_or_null(status, "policy");
    let policy_path = get_or_null(status, "policy_path")
        .as_str()
        .map_or("built in".into(), sanitize_text);
    let listeners: Vec<String> = get_array(status, "listeners")
        .iter()
        .map(listener_text)
        .collect();
    let stops = match get_u64(status, "stops") {
        0 => "none".to_owned(),
        count => format!("{count} (crawlgate stop --list)"),
    };
    let mut text = String::new();
    for (label, value) in [
        (
            "proxy",
            format!("crawlgate {}, {ready}", get_text(status, "version")),
        ),
        (
            "uptime",
            format!("{uptime}, since {}", get_text(status, "started_at")),
        ),
        (
            "policy",
            format!(
                "{}@{} ({policy_path})",
                get_text(policy, "name"),
                get_text(policy, "revision")
            ),
        ),
        ("shadow", shadow_text(get_or_null(status, "shadow_policy"))),
        ("listeners", listeners.join(", ")),
        ("page", format!("http://{}/ui", proxy.address)),
        ("HTTPS", https_text(get_or_null(status, "https"))),
        ("decision log", get_text(status, "decision_log")),
        ("stops", stops),
        ("requests", requests_text(status)),
    ] {
        let _ = writeln!(text, "{label:<13} {}", value);
    }
    for warning in get_array(status, "warnings")
        .iter()
        .filter_map(Json::as_str)
    {
        let label = colors.paint(Tone::Warning, "warning");
        let _ = writeln!(text, "{label}: {}", sanitize_text(warning));
    }
    text
}

/// Returns the text of a key, without control characters.
fn get_text(document: &Json, key: &str) -> String {
    sanitize_text(get_str(document, key)).into_owned()
}

fn shadow_text(shadow: &Json) -> String {
    let source = match get_str(shadow, "source") {
        "" => return "none".to_owned(),
        "api" => "crawlgate shadow set",
        _ => "policy.shadow",
    };
    let (name, revision) = (get_text(shadow, "name"), get_text(shadow, "revision"));
    format!("{name}@{revision} ({source})")
}

/// Formats whole minutes, such as `3d 2h 5m`.
fn uptime_text(seconds: u64) -> String {
    let minutes = seconds / 60;
    let (days, hours) = (minutes / 1_440, minutes / 60 % 24);
    match (days, hours, minutes % 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, minutes) => format!("{days}d {hours}h {minutes}m"),
    }
}

fn listener_text(listener: &Json) -> String {
    let address = get_text(listener, "address");
    match get_or_null(listener, "crawler").as_str() {
        Some(crawler) => format!("{address} ({})", sanitize_text(crawler)),
        None => address,
    }
}

fn https_text(https: &Json) -> String {
    let authorities: Vec<&str> = get_array(https, "authorities")
        .iter()
        .filter_map(Json::as_str)
        .collect();
    match get_or_null(https, "intercept").as_bool() {
        Some(true) => format!(
            "evaluated by URL; clients must trust {}",
            sanitize_text(&authorities.join(", "))
        ),
        Some(false) | None => "evaluated by host only (tls.intercept is false)".to_owned(),
    }
}

fn requests_text(status: &Json) -> String {
    let decisions = get_or_null(status, "decisions");
    if decisions.is_null() {
        return "not counted (telemetry.metrics is none)".to_owned();
    }
    format!(
        "{} allowed, {} refused; {} in progress, {} waiting",
        get_u64(decisions, "allow") + get_u64(decisions, "shadow_reject"),
        get_u64(decisions, "reject"),
        get_u64(status, "inflight"),
        get_u64(status, "held")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uptime_has_no_more_parts_than_it_needs() {
        for (seconds, text) in [
            (7, "7s"),
            (125, "2m"),
            (3_725, "1h 2m"),
            (266_700, "3d 2h 5m"),
        ] {
            assert_eq!(uptime_text(seconds), text);
        }
    }
}
