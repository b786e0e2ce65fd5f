//! `crawlgate ledger sweep`: starts a sweep in the running proxy and follows it to its end.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::cli::Exit;
use crate::cli::admin_client::{self, AdminClientRequest};
use crate::cli::args::{LedgerSweepArgs, OutputFormat};
use crate::cli::progress::ProgressBar;
use crate::cli::sanitize::sanitize_text;
use crate::cli::{console, inputs};
use crate::config::settings;

use super::source::LedgerSourceError;
use super::{get_u64, report_failure};

/// How often the proxy is asked how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs the command.
pub(super) fn run(args: &LedgerSweepArgs) -> Result<Exit, Exit> {
    let settings = inputs::load_settings_quietly(&args.proxy.overrides())?;
    let sweep =
        run_sweep(&settings.admin, args.dry_run).map_err(|failure| report_failure(&failure))?;
    let text = match args.format {
        OutputFormat::Json => format!("{sweep:#}\n"),
        OutputFormat::Text => format!("{}{}", sweep_text(&sweep), gaps_text(&sweep)),
    };
    Ok(console::print(&text, Exit::Success))
}

/// The sweep, once it is over.
fn run_sweep(admin: &settings::AdminConfig, dry_run: bool) -> Result<Json, LedgerSourceError> {
    let body = Some(json!({ "dry_run": dry_run }).to_string());
    let begun = admin_client::send(
        admin,
        &AdminClientRequest {
            method: "POST",
            body,
            ..AdminClientRequest::get("/api/v1/ledger/sweep")
        },
    )?;
    let mut bar = ProgressBar::new("URLs");
    loop {
        let stats = admin_client::send(admin, &AdminClientRequest::get("/api/v1/ledger"))?;
        let sweep = stats.get("sweep").cloned().unwrap_or(Json::Null);
        if !is_same_sweep(&begun, &stats) {
            let broken_off =
                "the sweep was broken off: another policy was loaded meanwhile. Ask for it again";
            return Err(LedgerSourceError::Other(broken_off.into()));
        }
        if sweep.get("state").and_then(Json::as_str) != Some("running") {
            return Ok(sweep);
        }
        bar.update(get_u64(&sweep, "looked_at"), get_u64(&sweep, "total"));
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether two answers of the proxy tell of one sweep.
fn is_same_sweep(begun: &Json, now: &Json) -> bool {
    ["/sweep/dry_run", "/sweep/revision"]
        .into_iter()
        .all(|place| begun.pointer(place) == now.pointer(place))
}

/// A sweep in a few lines.
pub(super) fn sweep_text(sweep: &Json) -> String {
    let word = |key| sweep.get(key).and_then(Json::as_str).unwrap_or("-");
    let dry = sweep.get("dry_run").and_then(Json::as_bool) == Some(true);
    let (what, verb) = if dry {
        ("dry run", "would leave")
    } else {
        ("sweep", "leave")
    };
    let over = if word("state") == "running" {
        "is under way"
    } else {
        "is over"
    };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "the {what} under revision {} {over}: {} of {} URLs were looked at",
        word("revision"),
        get_u64(sweep, "looked_at"),
        get_u64(sweep, "total")
    );
    for (key, words) in [
        ("removed", format!("{verb} the index (760)")),
        (
            "moved",
            "are in another crawler's space and stay (761)".to_owned(),
        ),
        ("unchanged", "have 760 or 761 from before".to_owned()),
        ("allowed", "are allowed".to_owned()),
    ] {
        let _ = writeln!(text, "  {:>12}  {words}", get_u64(sweep, key));
    }
    text
}

/// URLs that no space has.
fn gaps_text(sweep: &Json) -> String {
    let gaps = sweep
        .get("gaps")
        .and_then(Json::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for gap in gaps {
        let word = |key| sanitize_text(gap.get(key).and_then(Json::as_str).unwrap_or("-"));
        let code = gap.get("code").and_then(Json::as_u64).unwrap_or(0);
        let _ = writeln!(
            text,
            "{code}  {:<12}  {:<24}  {}",
            word("crawler"),
            word("rule"),
            word("url")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_sweep_is_not_taken_for_the_one_that_was_asked_for() {
        let sweep = |dry_run, revision| json!({ "sweep": { "dry_run": dry_run, "revision": revision, "total": 9 } });
        let begun = sweep(true, "3f9c2a1b");
        assert!(is_same_sweep(&begun, &sweep(true, "3f9c2a1b")));
        for other in [
            sweep(true, "00000000"),
            sweep(false, "3f9c2a1b"),
            json!({ "sweep": null }),
        ] {
            assert!(!is_same_sweep(&begun, &other), "{other}");
        }
    }

    #[test]
    fn a_dry_run_is_told_as_one() {
        let sweep = json!({
            "state": "done", "dry_run": true, "revision": "3f9c2a1b", "looked_at": 9, "total": 9, "removed": 1,
            "moved": 0, "unchanged": 2, "allowed": 6,
            "gaps": [{ "crawler": "news", "url": "http://a.test/", "rule": "spaces.b", "code": 760 }],
        });
        let text = sweep_text(&sweep);
        assert!(
            text.starts_with("the dry run under revision 3f9c2a1b is over: 9 of 9 URLs"),
            "{text}"
        );
        assert!(text.contains("1  would leave the index (760)"), "{text}");
        assert!(text.contains("2  have 760 or 761 from before"), "{text}");
        assert_eq!(
            gaps_text(&sweep),
            "760  news          spaces.b                  http://a.test/\n"
        );
    }
}
