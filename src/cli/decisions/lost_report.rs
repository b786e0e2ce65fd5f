//! The report of `--lost`: the lost requests, and what the log may be missing.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::lost::{LostKey, LostRequest, LostRequests, MissingLineTotals};
use crate::cli::text::sanitize_text;
use crate::console::{ConsoleColors, Tone};

/// The minimum width of the column of reasons.
const REASON_WIDTH: usize = 18;

/// A report of lost requests.
#[derive(Debug)]
pub(super) struct LostReport<'l> {
    requests: Vec<(&'l LostKey, &'l LostRequest)>,
    without_url: u64,
    missing: MissingLineTotals,
    /// The number of requests whose query is masked.
    redacted: usize,
    /// `true` if later answers were looked up in the ledger.
    has_ledger: bool,
    /// `true` if the configuration has the log keep every allowed request.
    logs_all: bool,
}

impl<'l> LostReport<'l> {
    pub(super) fn new(lost: &'l LostRequests<'_>, has_ledger: bool, logs_all: bool) -> Self {
        let requests = lost.sorted();
        Self {
            redacted: requests.iter().filter(|(key, _)| key.is_redacted()).count(),
            requests,
            without_url: lost.without_url(),
            missing: lost.missing_lines(),
            has_ledger,
            logs_all,
        }
    }

    pub(super) fn to_text(&self, colors: ConsoleColors) -> String {
        let mut text = String::new();
        for (key, lost) in &self.requests {
            let LostRequest {
                last,
                count,
                reason,
                cause,
                error,
                ..
            } = lost;
            let _ = write!(
                text,
                "{}  {:<REASON_WIDTH$}  {:<9}  {} {}",
                sanitize_text(last),
                sanitize_text(reason),
                sanitize_text(&key.crawler),
                sanitize_text(&key.method),
                sanitize_text(&key.subject)
            );
            if *count > 1 {
                let _ = write!(text, "  {count} times");
            }
            let cause = if cause.is_empty() { error } else { cause };
            if !cause.is_empty() {
                let cause = format!("  {}", sanitize_text(cause));
                text.push_str(&colors.paint(Tone::Faint, cause));
            }
            text.push('\n');
        }
        let _ = match self.requests.len() {
            0 => writeln!(text, "no lost URLs"),
            1 => writeln!(text, "1 lost URL"),
            n => writeln!(text, "{n} lost URLs"),
        };
        for remark in self.remarks() {
            let _ = writeln!(text, "{remark}");
        }
        text
    }

    /// Returns what the list may be missing, or may contain wrongly.
    fn remarks(&self) -> Vec<String> {
        let MissingLineTotals { left_out, dropped } = self.missing;
        let ledger = if self.has_ledger {
            ""
        } else {
            ", and no ledger was read"
        };
        let mut remarks = vec![];
        if dropped > 0 {
            remarks.push(format!(
                "incomplete: {dropped} lines of the log were dropped (crawlgate_decision_log_dropped_total); \
                 URLs may be missing in the list, or listed although they were answered later{ledger}"
            ));
        }
        if left_out > 0 {
            remarks.push(format!(
                "the log lacks {left_out} lines of allowed requests (logs.allows is below 1){ledger}: URLs that were \
                 answered later may be listed"
            ));
        }
        if left_out == 0 && !self.logs_all && !self.requests.is_empty() {
            remarks.push(format!(
                "logs.allows is below 1{ledger}: URLs that were answered later may be listed"
            ));
        }
        if self.without_url > 0 {
            let n = self.without_url;
            remarks.push(format!(
                "{n} more lost requests have no URL in the log (by the option record, or since the line that has it is missing)"
            ));
        }
        if self.redacted > 0 {
            let n = self.redacted;
            remarks.push(format!(
                "{n} of the URLs have masked queries (logs.query): later answers to them are not recognized"
            ));
        }
        remarks
    }

    pub(super) fn to_json(&self) -> Json {
        let requests: Vec<Json> = self
            .requests
            .iter()
            .map(|(key, lost)| request_to_json(key, lost))
            .collect();
        json!({
            "urls": requests,
            "without_url": self.without_url,
            "left_out": self.missing.left_out,
            "dropped": self.missing.dropped,
            "ledger": self.has_ledger,
        })
    }
}

fn request_to_json(key: &LostKey, lost: &LostRequest) -> Json {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "url": if key.is_tunnel() { None } else { some(&key.subject) },
        "host": some(&lost.host),
        "crawler": some(&key.crawler),
        "method": some(&key.method),
        "loss": some(&lost.loss),
        "reason": some(&lost.reason),
        "rule": some(&lost.rule),
        "error": some(&lost.error),
        "cause": some(&lost.cause),
        "count": lost.count,
        "first": some(&lost.first),
        "last": some(&lost.last),
        "decision": some(&lost.decision),
    })
}
