//! Metrics: every family is registered once, and its series are resolved before the first request.
//!
//! A request does not use the families directly. It fills a [`record::RequestRecord`], which counts once, at its end,
//! by array lookups and atomic adds. No text of a client or an origin becomes a label (the prometheus crate finds
//! series by a hash of their labels without comparing them). The decision log is in [`log`].

pub mod activity;
mod completion;
pub mod content;
pub mod families;
mod fleet;
pub mod labels;
pub mod ledger;
pub mod log;
pub mod policy;
mod process;
pub mod record;
mod repeat;
mod series;
pub mod shadow;
pub mod summary;
mod tls;
pub mod trace;

use std::fmt;
use std::sync::Arc;

use prometheus::{IntCounter, IntGauge, Registry, TextEncoder};

use crate::model::crawler::Crawler;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::robots::agent::RobotsTokenSource;
use crate::robots::fetch_outcome::RobotsFetchOutcome;

use activity::CrawlerActivity;
use families::MetricFamilies;
use labels::{
    ClientTlsFailureCause, DocumentOutcome, ForeignBytesKind, Http2ErrorCode, Http2ErrorScope,
    Http2Limit, LabelSet, MetricsMode, OriginHttp2Failure, ProxyHeaderFailure, ResponseSource,
    SniCheck, SpanLossReason, TunnelVerdictLabel, VerdictLabel,
};
use policy::{DEFAULT_RULE_LABELS, PolicySeries};
use series::{CounterTable, gauge_value, increment};

pub use fleet::FleetCounts;
pub use series::Error;

/// The `Content-Type` of [`Metrics::render`]'s text.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The extent of the metrics: the settings `telemetry.metrics` and `telemetry.rule_labels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsExtent {
    pub mode: MetricsMode,
    /// The most rules that are exported under their own id.
    pub rule_labels: usize,
}

impl Default for MetricsExtent {
    fn default() -> Self {
        Self {
            mode: MetricsMode::All,
            rule_labels: DEFAULT_RULE_LABELS,
        }
    }
}

/// All metrics of one proxy. Cheap to clone; two values created by [`Metrics::new`] share nothing.
#[derive(Clone)]
pub struct Metrics(Arc<MetricsInner>);

/// The index of a crawler's counters, looked up once, when the configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrawlerIndex(u16);

impl CrawlerIndex {
    /// The index of clients without a name.
    pub const ANONYMOUS: Self = Self(0);
}

struct MetricsInner {
    registry: Registry,
    mode: MetricsMode,
    families: MetricFamilies,
    crawlers: Box<[CrawlerSeries]>,
    addresses_refused: Box<[(&'static str, IntCounter)]>,
    head_rejections: CounterTable,
    policies: PolicySeries,
}

/// The counters of a crawler.
struct CrawlerSeries {
    crawler: Crawler,
    decisions: CounterTable,
    requests: CounterTable,
    repeats: IntCounter,
    held_disconnects: IntCounter,
    tls_failures: CounterTable,
    activity: CrawlerActivity,
}

impl Metrics {
    /// Registers every family; series that can be expected start at 0.
    ///
    /// `crawlers` are the configured ones (`anonymous` is added); `ranges` the names of the special address ranges.
    ///
    /// # Errors
    /// Only if a name in [`families`] is invalid or used twice.
    pub fn new(crawlers: &[Crawler], ranges: &[&'static str]) -> Result<Self, Error> {
        Self::with_extent(MetricsExtent::default(), crawlers, ranges)
    }

    /// Registers the families like [`Self::new`]; with [`MetricsMode::EssentialOnly`], only the essential ones are
    /// counted and exported.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_extent(
        extent: MetricsExtent,
        crawlers: &[Crawler],
        ranges: &[&'static str],
    ) -> Result<Self, Error> {
        let registry = Registry::new();
        let families = MetricFamilies::register(&registry)?;
        families
            .build_info
            .get_metric_with_label_values(&[env!("CARGO_PKG_VERSION")])?
            .set(1);
        Ok(Self(Arc::new(MetricsInner {
            crawlers: crawler_series(&families, crawlers)?,
            addresses_refused: addresses_refused(&families, ranges)?,
            head_rejections: head_rejections(&families),
            policies: PolicySeries::new(&families, extent),
            registry,
            mode: extent.mode,
            families,
        })))
    }

    /// Returns all metrics in the Prometheus text format 0.0.4, [`TEXT_FORMAT`].
    pub fn render(&self) -> String {
        self.0.policies.publish();
        let mut families = self.0.registry.gather();
        if self.0.mode == MetricsMode::EssentialOnly {
            families.retain(|family| {
                families::ALL
                    .iter()
                    .any(|known| known.essential && known.name == family.name())
            });
        }
        let mut text = String::with_capacity(64 << 10);
        // `gather` leaves out families without series; the text is written as far as it is valid.
        let _ = TextEncoder::new().encode_utf8(&families, &mut text);
        process::render(&mut text);
        text
    }

    /// Returns the index of a crawler; that of `anonymous` for a name that is not configured.
    pub fn crawler_index(&self, name: &str) -> CrawlerIndex {
        let index = self
            .0
            .crawlers
            .iter()
            .position(|series| series.crawler.as_str() == name);
        index
            .and_then(|index| u16::try_from(index).ok())
            .map_or(CrawlerIndex::ANONYMOUS, CrawlerIndex)
    }

    /// Counts a client connection as open until the value is dropped.
    pub fn track_connection(&self) -> GaugeGuard {
        GaugeGuard::new(
            self.enabled_families()
                .map(|families| &families.connections),
        )
    }

    /// Sets the maximum number of client connections.
    pub fn set_connections_limit(&self, limit: usize) {
        self.update(|families| families.connections_limit.set(gauge_value(limit)));
    }

    /// Counts a tunnel as open until the value is dropped.
    pub fn track_tunnel(&self) -> GaugeGuard {
        GaugeGuard::new(self.enabled_families().map(|families| &families.tunnels))
    }

    /// Counts a CONNECT by its verdict.
    pub fn record_tunnel_verdict(&self, verdict: TunnelVerdictLabel) {
        self.update(|families| families.tunnel_verdicts.increment(verdict));
    }

    /// Counts a response body that was inspected before it was sent on.
    pub fn record_document(&self, outcome: DocumentOutcome) {
        self.update(|families| families.documents.increment(outcome));
    }

    /// Counts a tunnel by its ClientHello.
    pub fn record_sni_check(&self, check: SniCheck) {
        self.update(|families| families.sni_checks.increment(check));
    }

    /// Counts a head that was rejected before it became a request.
    pub fn record_head_rejection(&self, reason: Reason) {
        if self.enabled_families().is_some() {
            let table = &self.0.head_rejections;
            increment(table.counter(reason.index(), || [reason.as_str()]));
        }
    }

    /// Counts a connection that was closed because its first bytes belong to another protocol.
    pub fn record_foreign_bytes(&self, kind: ForeignBytesKind) {
        self.update(|families| families.foreign_bytes.increment(kind));
    }

    /// Counts a connection that a proxy of a parent did not open.
    pub fn record_parent_failure(&self, parent: &str, error: &'static str) {
        self.update(|families| {
            let failures = &families.parent_failures;
            failures.with_label_values(&[parent, error]).inc();
        });
    }

    /// Records if a proxy of a parent can be connected to.
    pub fn set_parent_up(&self, parent: &str, proxy: &str, is_up: bool) {
        self.update(|families| {
            let up = families.parent_up.with_label_values(&[parent, proxy]);
            up.set(i64::from(is_up));
        });
    }

    /// Counts a connection of a load balancer that was closed because of its PROXY protocol header.
    pub fn record_proxy_header_failure(&self, failure: ProxyHeaderFailure) {
        self.update(|families| families.proxy_protocol_failures.increment(failure));
    }

    /// Counts a limit of HTTP/2 that a client has exceeded.
    pub fn record_http2_limit(&self, limit: Http2Limit) {
        self.update(|families| families.http2_limits.increment(limit));
    }

    /// Counts a violation of HTTP/2 by a client.
    pub fn record_http2_error(&self, scope: Http2ErrorScope, code: Http2ErrorCode) {
        self.update(|families| families.http2_errors.increment((scope, code)));
    }

    /// Counts an address that was not connected to; a range that was not passed to [`Self::new`] is `other`.
    pub fn record_refused_address(&self, range: &str) {
        if self.enabled_families().is_some() {
            let counters = &self.0.addresses_refused;
            let known = counters.iter().find(|(name, _)| *name == range);
            increment(known.or(counters.last()).map(|(_, counter)| counter));
        }
    }

    /// Increments the number of held requests.
    pub fn inc_held(&self) {
        self.update(|families| families.held.inc());
    }

    /// Decrements the number of held requests.
    pub fn dec_held(&self) {
        self.update(|families| families.held.dec());
    }

    /// Counts a client that left while its request was held.
    pub fn record_held_disconnect(&self, crawler: &Crawler) {
        if self.enabled_families().is_some() {
            let index = self.crawler_index(crawler.as_str());
            increment(
                self.crawler_series(index)
                    .map(|series| &series.held_disconnects),
            );
        }
    }

    /// Counts a request that is sent sooner than its host's robots.txt allows, because of the policy's cap.
    pub fn record_capped_crawl_delay(&self) {
        self.update(|families| families.crawl_delay_capped.inc());
    }

    /// Sets the number of active stops.
    pub fn set_stops(&self, count: usize) {
        self.update(|families| families.stops.set(gauge_value(count)));
    }

    /// Sets the number of tracked hosts, of those that are backing off, and of slots in use.
    pub fn set_hosts(&self, tracked: usize, backing_off: usize, leases: usize) {
        self.update(|families| {
            families.hosts_tracked.set(gauge_value(tracked));
            families.hosts_backing_off.set(gauge_value(backing_off));
            families.leases.set(gauge_value(leases));
        });
    }

    /// Counts a host that seems to have banned this proxy.
    pub fn record_ban_suspicion(&self) {
        self.update(|families| families.ban_suspicions.inc());
    }

    /// Counts a TLS handshake with an origin whose certificate was not verified.
    pub fn record_unverified_upstream(&self) {
        self.update(|families| families.upstream_unverified.inc());
    }

    /// Counts an HTTP/2 connection to an origin.
    pub fn record_http2_connection(&self) {
        self.update(|families| families.upstream_http2_connections.inc());
    }

    /// Counts a failed HTTP/2 stream to an origin, or a connection that is closed because of the origin.
    pub fn record_http2_failure(&self, failure: OriginHttp2Failure) {
        self.update(|families| families.upstream_http2_failures.increment(failure));
    }

    /// Counts a fetch of a robots.txt.
    pub fn record_robots_fetch(&self, outcome: RobotsFetchOutcome) {
        self.update(|families| families.robots_fetches.increment(outcome));
    }

    /// Counts a request for which robots.txt is obeyed.
    pub fn record_robots_token(&self, source: RobotsTokenSource) {
        self.update(|families| families.robots_tokens.increment(source));
    }

    /// Sets the number of hosts whose robots.txt is cached.
    pub fn set_robots_cache_entries(&self, hosts: u64) {
        self.update(|families| families.robots_cache_entries.set(gauge_value(hosts)));
    }

    /// Counts spans that a collector has accepted.
    pub fn add_exported_spans(&self, count: u64) {
        self.families().spans_exported.inc_by(count);
    }

    /// Counts lost spans.
    pub fn add_lost_spans(&self, reason: SpanLossReason, count: u64) {
        self.families().spans_dropped.add(reason, count);
    }

    /// Counts a panic that was caught.
    pub fn record_panic(&self) {
        self.families().panics.inc();
    }

    /// Returns the counter of lost log lines.
    pub(crate) fn log_dropped_counter(&self) -> IntCounter {
        self.families().log_dropped.clone()
    }

    fn families(&self) -> &MetricFamilies {
        &self.0.families
    }

    /// Returns the families, if requests, connections and hosts are counted.
    fn enabled_families(&self) -> Option<&MetricFamilies> {
        (self.0.mode == MetricsMode::All).then_some(&self.0.families)
    }

    /// Changes the families, if requests, connections and hosts are counted.
    fn update(&self, change: impl FnOnce(&MetricFamilies)) {
        if let Some(families) = self.enabled_families() {
            change(families);
        }
    }

    fn crawler_series(&self, index: CrawlerIndex) -> Option<&CrawlerSeries> {
        self.0.crawlers.get(usize::from(index.0))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Increments a gauge until it is dropped; without a gauge, it does nothing.
#[must_use]
#[derive(Debug)]
pub struct GaugeGuard(Option<IntGauge>);

impl GaugeGuard {
    fn new(gauge: Option<&IntGauge>) -> Self {
        if let Some(gauge) = gauge {
            gauge.inc();
        }
        Self(gauge.cloned())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

fn crawler_series(
    families: &MetricFamilies,
    crawlers: &[Crawler],
) -> Result<Box<[CrawlerSeries]>, Error> {
    let all = [Crawler::anonymous()]
        .into_iter()
        .chain(crawlers.iter().cloned());
    let series = all.map(|crawler| {
        let label = &[crawler.as_str()];
        Ok(CrawlerSeries {
            decisions: CounterTable::new(&families.decisions, labels::DECISION_COUNT),
            requests: CounterTable::new(&families.requests, labels::REQUEST_SLOTS),
            repeats: families
                .repeat_rejections
                .get_metric_with_label_values(label)?,
            held_disconnects: families
                .held_disconnects
                .get_metric_with_label_values(label)?,
            tls_failures: CounterTable::new(
                &families.client_tls_failures,
                ClientTlsFailureCause::ALL.len(),
            ),
            activity: CrawlerActivity::default(),
            crawler,
        })
    });
    let series: Box<[CrawlerSeries]> = series.collect::<Result<_, Error>>()?;
    series.iter().for_each(CrawlerSeries::init_zeros);
    Ok(series)
}

fn addresses_refused(
    families: &MetricFamilies,
    ranges: &[&'static str],
) -> Result<Box<[(&'static str, IntCounter)]>, Error> {
    let ranges = ranges.iter().copied().chain([labels::OTHER]);
    let counters = ranges.map(|range| {
        let counter = families
            .addresses_refused
            .get_metric_with_label_values(&[range])?;
        Ok((range, counter))
    });
    counters.collect()
}

fn head_rejections(families: &MetricFamilies) -> CounterTable {
    let table = CounterTable::new(&families.head_rejections, Reason::ALL.len());
    let reasons = Reason::ALL.into_iter();
    for reason in reasons.filter(|reason| reason.row().rejects_head) {
        table.counter(reason.index(), || [reason.as_str()]);
    }
    table
}

impl CrawlerSeries {
    fn init_zeros(&self) {
        for (stage, verdict, reason) in labels::possible_decisions() {
            self.decision_counter(stage, verdict, reason);
        }
        let get = labels::method_slot(&http::Method::GET);
        for (status, source) in labels::expected_requests() {
            self.request_counter(get, Some(status), source);
        }
        for cause in ClientTlsFailureCause::ALL {
            self.tls_failure_counter(cause);
        }
    }

    fn tls_failure_counter(&self, cause: ClientTlsFailureCause) -> Option<&IntCounter> {
        self.tls_failures
            .counter(cause.index(), || [self.crawler.as_str(), cause.as_str()])
    }

    fn decision_counter(
        &self,
        stage: Stage,
        verdict: VerdictLabel,
        reason: Option<Reason>,
    ) -> Option<&IntCounter> {
        self.decisions
            .counter(labels::decision_index(stage, verdict, reason), || {
                [
                    stage.as_str(),
                    verdict.as_str(),
                    labels::reason_label(reason),
                    self.crawler.as_str(),
                ]
            })
    }

    fn request_counter(
        &self,
        method: usize,
        status: Option<u16>,
        source: ResponseSource,
    ) -> Option<&IntCounter> {
        let code = labels::code_slot(status);
        self.requests
            .counter(labels::request_slot(method, code, source), || {
                let (method, code) = labels::request_labels(method, code);
                [self.crawler.as_str(), method, code, source.as_str()]
            })
    }
}
