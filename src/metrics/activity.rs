//! The requests and TLS handshakes of each crawler, with the times of the latest, for the admin API.
//!
//! The times and the successful handshakes are exported by no metric family. A request writes them with relaxed atomic
//! stores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::labels::{self, ClientTlsFailureCause, VerdictLabel};
use super::{CrawlerIndex, CrawlerSeries, Metrics};

/// The activity of a crawler, besides its exported counters.
#[derive(Default)]
pub(super) struct CrawlerActivity {
    last_seen: LatestTime,
    handshakes: AtomicU64,
    last_handshake: LatestTime,
    last_distrust: LatestTime,
}

/// A wall time in whole seconds since 1970, 0 for none.
#[derive(Default)]
struct LatestTime(AtomicU64);

impl LatestTime {
    /// Written at most once a second, so that threads do not contend for the cache line.
    fn set(&self, at: SystemTime) {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.unwrap_or_default().as_secs();
        if self.0.load(Ordering::Relaxed) != seconds {
            self.0.store(seconds, Ordering::Relaxed);
        }
    }

    fn get(&self) -> Option<SystemTime> {
        let seconds = self.0.load(Ordering::Relaxed);
        (seconds > 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }
}

impl CrawlerActivity {
    /// Records that a request has ended.
    pub(super) fn record_request(&self, at: SystemTime) {
        self.last_seen.set(at);
    }

    pub(super) fn record_handshake(&self, at: SystemTime) {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.last_handshake.set(at);
        self.last_seen.set(at);
    }

    pub(super) fn record_handshake_failure(&self, cause: ClientTlsFailureCause, at: SystemTime) {
        if cause == ClientTlsFailureCause::Distrust {
            self.last_distrust.set(at);
        }
        self.last_seen.set(at);
    }
}

/// The requests and handshakes of a crawler since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerReport {
    /// The name of the crawler.
    pub crawler: String,
    /// The number of requests by verdict, in the order of [`VerdictLabel::ALL`].
    pub verdicts: [u64; VerdictLabel::ALL.len()],
    /// The number of refusals by reason; only reasons that have occurred.
    pub reasons: Vec<(&'static str, u64)>,
    /// The number of refusals of URLs that had been refused a short time before.
    pub repeats: u64,
    /// The number of clients that left while their requests waited.
    pub left_waiting: u64,
    pub tls: CrawlerTlsReport,
    /// The time of the latest request or handshake, to the second.
    pub last_seen: Option<SystemTime>,
}

/// The TLS handshakes of a crawler inside its tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerTlsReport {
    /// The number of successful handshakes.
    pub handshakes: u64,
    /// The number of failures by cause, in the order of [`ClientTlsFailureCause::ALL`].
    pub failures: Vec<(ClientTlsFailureCause, u64)>,
    /// The time of the latest successful handshake.
    pub last_handshake: Option<SystemTime>,
    /// The time when the crawler rejected the certificate last.
    pub last_distrust: Option<SystemTime>,
}

impl Metrics {
    /// Records that a crawler has accepted a certificate of the proxy's authority.
    pub fn record_crawler_handshake(&self, crawler: CrawlerIndex, at: SystemTime) {
        if self.enabled_families().is_some()
            && let Some(series) = self.crawler_series(crawler)
        {
            series.activity.record_handshake(at);
        }
    }

    /// Returns the report of each crawler, in the order of the configuration after `anonymous`. `None` if nothing is
    /// counted.
    pub fn crawler_reports(&self) -> Option<Vec<CrawlerReport>> {
        self.enabled_families()?;
        Some(self.0.crawlers.iter().map(CrawlerSeries::report).collect())
    }
}

impl CrawlerSeries {
    fn report(&self) -> CrawlerReport {
        let mut verdicts = [0; VerdictLabel::ALL.len()];
        let mut reasons: Vec<(&'static str, u64)> = Vec::new();
        for (place, count) in self.decisions.counts().filter(|(_, count)| *count > 0) {
            let Some((_, verdict, reason)) = labels::decision_from_index(place) else {
                continue;
            };
            if let Some(of_verdict) = verdicts.get_mut(verdict as usize) {
                *of_verdict += count;
            }
            if verdict == VerdictLabel::Reject {
                let label = labels::reason_label(reason);
                match reasons.iter_mut().find(|(known, _)| *known == label) {
                    Some((_, sum)) => *sum += count,
                    None => reasons.push((label, count)),
                }
            }
        }
        let failures = ClientTlsFailureCause::ALL
            .into_iter()
            .zip(self.tls_failures.counts());
        CrawlerReport {
            crawler: self.crawler.as_str().to_owned(),
            verdicts,
            reasons,
            repeats: self.repeats.get(),
            left_waiting: self.held_disconnects.get(),
            tls: CrawlerTlsReport {
                handshakes: self.activity.handshakes.load(Ordering::Relaxed),
                failures: failures.map(|(cause, (_, count))| (cause, count)).collect(),
                last_handshake: self.activity.last_handshake.get(),
                last_distrust: self.activity.last_distrust.get(),
            },
            last_seen: self.activity.last_seen.get(),
        }
    }
}
