//! `GET /api/v1/crawlers`: the requests of each crawler, its refusals, and if it trusts the certificate authority.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::clock::Rfc3339;
use crate::metrics::activity::{CrawlerReport, CrawlerTlsReport};
use crate::metrics::labels::VerdictLabel;
use crate::model::crawler::{Crawler, CrawlerHint};
use crate::policy::Policy;

use super::AdminServer;
use super::history::CrawlerSampleCounts;
use super::response;

/// The time for which a rejected certificate counts, although later handshakes have succeeded: several machines may be
/// one crawler.
const DISTRUST_MEMORY: Duration = Duration::from_secs(600);

impl AdminServer {
    /// Returns a row for `anonymous` and for each configured crawler. Counts are `null` if nothing is counted.
    pub(super) fn show_crawlers(&self) -> Response<Full<Bytes>> {
        let snapshot = self.apis.policy.active_policy.load();
        let policy = &snapshot.policy;
        let now = self.apis.process.wall_time();
        let reports = self.apis.metrics.crawler_reports();
        let configured = &self.apis.policy.crawlers;
        let anonymous = Crawler::anonymous();
        let all = [&anonymous].into_iter().chain(configured.iter());
        let rows: Vec<Json> = all
            .map(|crawler| {
                let report = reports.as_ref().and_then(|reports| {
                    reports
                        .iter()
                        .find(|report| report.crawler == crawler.as_str())
                });
                let mut row = identity_to_json(crawler, policy);
                let counts = match report {
                    Some(report) => self.counts_to_json(report, now),
                    None => empty_counts(),
                };
                response::extend(&mut row, &counts);
                row
            })
            .collect();
        let document = json!({
            "policy": policy.name(),
            "revision": policy.revision(),
            "default_profile": self.apis.policy.default_profile.as_str(),
            "metrics": if reports.is_some() { "full" } else { "none" },
            "crawlers": rows,
        });
        response::json(StatusCode::OK, &document)
    }

    fn counts_to_json(&self, report: &CrawlerReport, now: SystemTime) -> Json {
        let admitted =
            count(report, VerdictLabel::Allow) + count(report, VerdictLabel::ShadowReject);
        let rejected = count(report, VerdictLabel::Reject);
        let latest = CrawlerSampleCounts { admitted, rejected };
        let recent = |span| {
            let before = self.history.crawler_counts(&report.crawler, now, span)?;
            Some(recent_to_json(latest, before))
        };
        let reasons = report.reasons.iter();
        json!({
            "allow": count(report, VerdictLabel::Allow),
            "reject": rejected,
            "shadow_reject": count(report, VerdictLabel::ShadowReject),
            "reasons": reasons.map(|(reason, count)| ((*reason).to_owned(), json!(count))).collect::<Map<_, _>>(),
            "repeats": report.repeats,
            "left_waiting": report.left_waiting,
            "last_minute": recent(Duration::from_secs(60)),
            "last_hour": recent(Duration::from_secs(3_600)),
            "last_seen": report.last_seen.map(time_to_json),
            "tls": tls_to_json(&report.tls),
        })
    }
}

fn identity_to_json(crawler: &Crawler, policy: &Policy) -> Json {
    let spaces = policy.spaces();
    let space = spaces
        .for_crawler(crawler.as_str())
        .and_then(|space| spaces.get(space));
    let hints = CrawlerHint::ALL
        .into_iter()
        .filter(|hint| crawler.allows_hint(*hint));
    json!({
        "crawler": crawler.as_str(),
        "configured": crawler.as_str() != Crawler::ANONYMOUS,
        "profile": crawler.profile().map(|profile| profile.as_str()),
        "robots_agent": crawler.robots_agent(),
        "may": hints.map(CrawlerHint::as_str).collect::<Vec<_>>(),
        "space": space.map(|space| space.name.as_str()),
    })
}

/// Returns the keys of a row's counts with nulls, for `telemetry.metrics: none`.
fn empty_counts() -> Json {
    json!({
        "allow": null,
        "reject": null,
        "shadow_reject": null,
        "reasons": null,
        "repeats": null,
        "left_waiting": null,
        "last_minute": null,
        "last_hour": null,
        "last_seen": null,
        "tls": null,
    })
}

fn count(report: &CrawlerReport, verdict: VerdictLabel) -> u64 {
    report
        .verdicts
        .get(verdict as usize)
        .copied()
        .unwrap_or_default()
}

/// Returns the requests since a sample, and the time that they took to come.
fn recent_to_json(
    latest: CrawlerSampleCounts,
    (before, span): (CrawlerSampleCounts, Duration),
) -> Json {
    json!({
        "span_ms": u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
        "allow": latest.admitted.saturating_sub(before.admitted),
        "reject": latest.rejected.saturating_sub(before.rejected),
    })
}

fn time_to_json(at: SystemTime) -> Json {
    Rfc3339(at).to_string().into()
}

fn tls_to_json(tls: &CrawlerTlsReport) -> Json {
    let failures = tls.failures.iter();
    json!({
        "trust": trust(tls),
        "handshakes": tls.handshakes,
        "failures": failures
            .map(|(cause, count)| (cause.as_str().to_owned(), json!(count)))
            .collect::<Map<_, _>>(),
        "last_handshake": tls.last_handshake.map(time_to_json),
        "last_distrust": tls.last_distrust.map(time_to_json),
    })
}

/// Returns if the crawler trusts the authority, by its latest handshakes.
fn trust(tls: &CrawlerTlsReport) -> &'static str {
    match (tls.last_handshake, tls.last_distrust) {
        (None, None) => "unknown",
        (Some(_), None) => "trusted",
        (None, Some(_)) => "distrusted",
        (Some(accepted), Some(rejected)) => {
            let apart = match accepted.duration_since(rejected) {
                Ok(later) => later,
                Err(earlier) => earlier.duration(),
            };
            if apart < DISTRUST_MEMORY {
                "partly"
            } else if accepted > rejected {
                "trusted"
            } else {
                "distrusted"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_follows_the_latest_handshakes() {
        let at = |seconds: Option<u64>| {
            seconds.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        for (accepted, rejected, expected) in [
            (None, None, "unknown"),
            (Some(1), None, "trusted"),
            (None, Some(1), "distrusted"),
            (Some(5_000), Some(1_000), "trusted"),
            (Some(1_000), Some(5_000), "distrusted"),
            (Some(1_000), Some(1_500), "partly"),
            (Some(1_500), Some(1_000), "partly"),
        ] {
            let report = CrawlerTlsReport {
                handshakes: 0,
                failures: Vec::new(),
                last_handshake: at(accepted),
                last_distrust: at(rejected),
            };
            assert_eq!(trust(&report), expected, "{accepted:?} {rejected:?}");
        }
    }
}
