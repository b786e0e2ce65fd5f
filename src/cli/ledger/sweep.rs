//! `crawlgate ledger sweep`: starts a sweep in the running proxy, and waits until it is finished; evaluates a policy that
//! is not loaded; and confirms removals that are held.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::cli::Exit;
use crate::cli::admin_client::{AdminClientRequest, get_array, get_u64};
use crate::cli::args::{LedgerSourceArgs, LedgerSweepArgs, OutputFormat};
use crate::cli::progress::ProgressBar;
use crate::cli::running_proxy::RunningProxy;
use crate::cli::text::sanitize_text;
use crate::cli::{console, inputs};
use crate::config::settings::PolicyOrigin;
use crate::pipeline::sweep::candidate::CandidateSweep;
use crate::report::ledger::sweep_to_json;
use crate::report::record;

use super::report_error;
use super::rows::{number_cell, text_cell};
use super::source::{LedgerSource, LedgerSourceError};

const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) fn run(args: &LedgerSweepArgs) -> Result<Exit, Exit> {
    let sweep = if let Some(policy) = &args.policy {
        try_policy(args, policy)?
    } else {
        let proxy = RunningProxy::find(&args.proxy)?;
        if let Some(accounts) = &args.confirm {
            return confirm(&proxy, accounts, args.format);
        }
        run_sweep(&proxy, args.dry_run).map_err(|error| report_error(&error))?
    };
    let text = match args.format {
        OutputFormat::Json => format!("{sweep:#}\n"),
        OutputFormat::Text => format!("{}{}", sweep_text(&sweep), gaps_text(&sweep)),
    };
    Ok(console::print(&text, Exit::Success))
}

/// Evaluates a policy that is not loaded, here, over the records of the proxy or of its files.
fn try_policy(args: &LedgerSweepArgs, path: &Path) -> Result<Json, Exit> {
    let policy = inputs::compile_policy(&PolicyOrigin::Path(path.to_owned()))?;
    let source = LedgerSource::open(&LedgerSourceArgs {
        proxy: args.proxy.clone(),
        offline: args.offline,
    })?;
    let mut sweep = CandidateSweep::new(Arc::new(policy.policy));
    let mut progress = ProgressBar::new("URLs");
    let mut examined = 0;
    let result = source.for_each_record(|document, total| {
        if let Some(record) = record::evaluated_from_json(document) {
            sweep.examine(&record);
        }
        examined += 1;
        progress.update(examined, total);
    });
    drop(progress);
    result.map_err(|error| report_error(&error))?;
    Ok(sweep_to_json(&sweep.finish()))
}

/// Confirms removals that are held.
fn confirm(proxy: &RunningProxy, accounts: &str, format: OutputFormat) -> Result<Exit, Exit> {
    let body = Some(json!({ "confirm": accounts }).to_string());
    let confirmed = proxy
        .send(&AdminClientRequest::post("/api/v1/ledger/removals", body))
        .map_err(|error| report_error(&LedgerSourceError::from(error)))?;
    let text = match format {
        OutputFormat::Json => format!("{confirmed:#}\n"),
        OutputFormat::Text => get_array(&confirmed, "confirmed")
            .iter()
            .filter_map(Json::as_str)
            .map(|cause| {
                format!(
                    "the held removals by {} are ordered\n",
                    sanitize_text(cause)
                )
            })
            .collect(),
    };
    Ok(console::print(&text, Exit::Success))
}

/// Starts a sweep, and returns its result when it is finished.
fn run_sweep(proxy: &RunningProxy, dry_run: bool) -> Result<Json, LedgerSourceError> {
    let body = Some(json!({ "dry_run": dry_run }).to_string());
    let started = proxy.send(&AdminClientRequest::post("/api/v1/ledger/sweep", body))?;
    let mut progress = ProgressBar::new("URLs");
    loop {
        let stats = proxy.get("/api/v1/ledger")?;
        let sweep = stats.get("sweep").cloned().unwrap_or(Json::Null);
        if !is_same_sweep(&started, &stats) {
            return Err(LedgerSourceError::Other(
                "the sweep was canceled, since another policy was loaded: start a new sweep".into(),
            ));
        }
        if sweep.get("state").and_then(Json::as_str) != Some("running") {
            return Ok(sweep);
        }
        progress.update(get_u64(&sweep, "looked_at"), get_u64(&sweep, "total"));
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns `true` if two responses of the proxy are about the same sweep.
fn is_same_sweep(started: &Json, current: &Json) -> bool {
    ["/sweep/dry_run", "/sweep/revision"]
        .into_iter()
        .all(|pointer| started.pointer(pointer) == current.pointer(pointer))
}

/// Formats the state and the counts of a sweep.
pub(super) fn sweep_text(sweep: &Json) -> String {
    let dry_run = sweep.get("dry_run").and_then(Json::as_bool) == Some(true);
    let (name, verb) = if dry_run {
        ("dry run", "would leave")
    } else {
        ("sweep", "leave")
    };
    let state = if text_cell(sweep, "state") == "running" {
        "is in progress"
    } else {
        "is finished"
    };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "the {name} under revision {} {state}: {} of {} URLs were evaluated",
        text_cell(sweep, "revision"),
        get_u64(sweep, "looked_at"),
        get_u64(sweep, "total")
    );
    for (key, label) in [
        ("removed", format!("{verb} the index (760)")),
        (
            "moved",
            "are in another crawler's space and stay (761)".to_owned(),
        ),
        (
            "unchanged",
            "already have 760 or 761, or wait for their removal".to_owned(),
        ),
        ("refused", "are refused otherwise, and stay".to_owned()),
        ("allowed", "are allowed".to_owned()),
    ] {
        let _ = writeln!(text, "  {:>12}  {label}", get_u64(sweep, key));
    }
    text
}

/// Formats the URLs that would be refused.
fn gaps_text(sweep: &Json) -> String {
    let mut text = String::new();
    for gap in get_array(sweep, "gaps") {
        let _ = writeln!(
            text,
            "{:>3}  {:<12}  {:<24}  {}",
            number_cell(gap, "code"),
            sanitize_text(text_cell(gap, "crawler")),
            sanitize_text(text_cell(gap, "rule")),
            sanitize_text(text_cell(gap, "url"))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_sweep_is_not_mistaken_for_the_one_that_was_started() {
        fn sweep(dry_run: bool, revision: &str) -> Json {
            json!({ "sweep": { "dry_run": dry_run, "revision": revision, "total": 9 } })
        }
        let started = sweep(true, "3f9c2a1b");
        assert!(is_same_sweep(&started, &sweep(true, "3f9c2a1b")));
        for other in [
            sweep(true, "00000000"),
            sweep(false, "3f9c2a1b"),
            json!({ "sweep": null }),
        ] {
            assert!(!is_same_sweep(&started, &other), "{other}");
        }
    }

    #[test]
    fn a_dry_run_is_reported_as_one() {
        let sweep = json!({
            "state": "done", "dry_run": true, "revision": "3f9c2a1b", "looked_at": 9, "total": 9, "removed": 1,
            "moved": 0, "unchanged": 2, "refused": 1, "allowed": 5,
            "gaps": [{ "crawler": "news", "url": "http://a.test/", "rule": "spaces.b", "code": 760 }],
        });
        let text = sweep_text(&sweep);
        assert!(
            text.starts_with("the dry run under revision 3f9c2a1b is finished: 9 of 9 URLs"),
            "{text}"
        );
        assert!(text.contains("1  would leave the index (760)"), "{text}");
        assert!(
            text.contains("2  already have 760 or 761, or wait"),
            "{text}"
        );
        assert_eq!(
            gaps_text(&sweep),
            "760  news          spaces.b                  http://a.test/\n"
        );
    }
}
