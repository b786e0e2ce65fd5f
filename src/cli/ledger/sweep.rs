//! `crawlgate ledger sweep`: starts a sweep in the running proxy and follows it to its end.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::cli::Exit;
use crate::cli::admin::{self, Asked};
use crate::cli::args::{Format, LedgerSweepArgs};
use crate::cli::harmless::harmless;
use crate::cli::progress::Bar;
use crate::cli::{open, out};
use crate::config::settings;

use super::source::Failure;
use super::{failed, number};

/// How often the proxy is asked how far it is.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the command.
pub(super) fn run(args: &LedgerSweepArgs) -> Result<Exit, Exit> {
    let settings = open::settings_alone(&args.proxy.overrides())?;
    let sweep = follow(&settings.admin, args.dry_run).map_err(|failure| failed(&failure))?;
    let text = match args.format {
        Format::Json => format!("{sweep:#}\n"),
        Format::Text => format!("{}{}", told(&sweep), gaps(&sweep)),
    };
    Ok(out::write(&text, Exit::Success))
}

/// The sweep, once it is over.
fn follow(admin: &settings::Admin, dry_run: bool) -> Result<Json, Failure> {
    let body = Some(json!({ "dry_run": dry_run }).to_string());
    let begun = admin::ask(
        admin,
        &Asked {
            method: "POST",
            body,
            ..Asked::get("/api/v1/ledger/sweep")
        },
    )?;
    let mut bar = Bar::new("URLs");
    loop {
        let stats = admin::ask(admin, &Asked::get("/api/v1/ledger"))?;
        let sweep = stats.get("sweep").cloned().unwrap_or(Json::Null);
        if !is_same(&begun, &stats) {
            let broken_off =
                "the sweep was broken off: another policy was loaded meanwhile. Ask for it again";
            return Err(Failure::Other(broken_off.into()));
        }
        if sweep.get("state").and_then(Json::as_str) != Some("running") {
            return Ok(sweep);
        }
        bar.at(number(&sweep, "looked_at"), number(&sweep, "total"));
        thread::sleep(LOOK);
    }
}

/// Whether two answers of the proxy tell of one sweep.
fn is_same(begun: &Json, now: &Json) -> bool {
    ["/sweep/dry_run", "/sweep/revision"]
        .into_iter()
        .all(|place| begun.pointer(place) == now.pointer(place))
}

/// A sweep in a few lines.
pub(super) fn told(sweep: &Json) -> String {
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
        number(sweep, "looked_at"),
        number(sweep, "total")
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
        let _ = writeln!(text, "  {:>12}  {words}", number(sweep, key));
    }
    text
}

/// URLs that no space has.
fn gaps(sweep: &Json) -> String {
    let gaps = sweep
        .get("gaps")
        .and_then(Json::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for gap in gaps {
        let word = |key| harmless(gap.get(key).and_then(Json::as_str).unwrap_or("-"));
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
        assert!(is_same(&begun, &sweep(true, "3f9c2a1b")));
        for other in [
            sweep(true, "00000000"),
            sweep(false, "3f9c2a1b"),
            json!({ "sweep": null }),
        ] {
            assert!(!is_same(&begun, &other), "{other}");
        }
    }

    #[test]
    fn a_dry_run_is_told_as_one() {
        let sweep = json!({
            "state": "done", "dry_run": true, "revision": "3f9c2a1b", "looked_at": 9, "total": 9, "removed": 1,
            "moved": 0, "unchanged": 2, "allowed": 6,
            "gaps": [{ "crawler": "news", "url": "http://a.test/", "rule": "spaces.b", "code": 760 }],
        });
        let text = told(&sweep);
        assert!(
            text.starts_with("the dry run under revision 3f9c2a1b is over: 9 of 9 URLs"),
            "{text}"
        );
        assert!(text.contains("1  would leave the index (760)"), "{text}");
        assert!(text.contains("2  have 760 or 761 from before"), "{text}");
        assert_eq!(
            gaps(&sweep),
            "760  news          spaces.b                  http://a.test/\n"
        );
    }
}
