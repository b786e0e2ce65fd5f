//! What the proxy counts: every metric family, registered once, with its handles resolved before requests come.
//!
//! A request touches none of this directly: it fills a [`record::Record`], which counts once, at its end, by array
//! look-ups and atomic adds. No text of a client or an origin becomes a label (the crate finds series by a hash of
//! their labels without comparing them). Nothing here decides, listens or writes; [`log`] writes the decision log.

mod completion;
pub mod content;
mod feed;
pub mod labels;
pub mod ledger;
pub mod log;
pub mod names;
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

use prometheus::{Histogram, IntCounter, IntGauge, Registry, TextEncoder};

use crate::model::crawler::Crawler;
use crate::model::reason::Reason;

use content::ContentFamily;
use feed::FeedFamilies;
use labels::{
    DocumentOutcome, ForeignBytesKind, MetricsMode, ResponseSource, SniCheck, SpanLossReason,
    TunnelVerdictLabel,
};
use ledger::LedgerFamilies;
use policy::PolicyFamilies;
use series::{CounterTable, Registrar, increment};
use tls::TlsFamilies;

pub use series::Error;

/// The `Content-Type` of [`Metrics::render`]'s text.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of one proxy. Cheap to clone; two values made by [`Metrics::new`] share nothing.
#[derive(Clone)]
pub struct Metrics(Arc<MetricFamilies>);

/// A crawler's place in the tables of counters, found once, when the configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrawlerIndex(u16);

impl CrawlerIndex {
    /// A client without a name.
    pub const ANONYMOUS: Self = Self(0);
}

pub(crate) struct MetricFamilies {
    registry: Registry,
    mode: MetricsMode,
    crawlers: Box<[CrawlerSeries]>,
    request_duration: Box<[Histogram]>,
    decision_duration: Histogram,
    upstream_ttfb: Histogram,
    dns_duration: Histogram,
    connect_duration: Histogram,
    upstream_responses: Box<[IntCounter]>,
    upstream_errors: Box<[IntCounter]>,
    bytes: ByteCounters,
    connections: IntGauge,
    tunnels: IntGauge,
    tunnel_verdicts: Box<[IntCounter]>,
    documents: Box<[IntCounter]>,
    sni_checks: Box<[IntCounter]>,
    inflight: IntGauge,
    hold: HoldFamilies,
    addresses_refused: Box<[(&'static str, IntCounter)]>,
    upstream_unverified: IntCounter,
    robots_fetches: Box<[IntCounter]>,
    robots_cache_entries: IntGauge,
    head_rejections: CounterTable,
    foreign_bytes: Box<[IntCounter]>,
    log_dropped: IntCounter,
    spans_exported: IntCounter,
    spans_lost: Box<[IntCounter]>,
    panics: IntCounter,
    tls: TlsFamilies,
    feed: FeedFamilies,
    ledger: LedgerFamilies,
    policy: PolicyFamilies,
}

/// What is counted of the hold.
struct HoldFamilies {
    seconds: Histogram,
    held: IntGauge,
    tracked: IntGauge,
    backing_off: IntGauge,
    bans: IntCounter,
    leases: IntGauge,
    capped: IntCounter,
    stops: IntGauge,
}

struct CrawlerSeries {
    crawler: Crawler,
    decisions: CounterTable,
    requests: CounterTable,
    repeats: IntCounter,
    held_disconnects: IntCounter,
    tls_failures: IntCounter,
}

struct ByteCounters {
    from_client: IntCounter,
    to_client: IntCounter,
    from_origin: IntCounter,
    to_origin: IntCounter,
}

impl Metrics {
    /// Registers every family, with the series that can occur at 0.
    ///
    /// `crawlers` are the configured ones (`anonymous` is added); `ranges` the names of the special address ranges.
    ///
    /// # Errors
    /// Only if a name in [`names`] is not valid or stands there twice.
    pub fn new(crawlers: &[Crawler], ranges: &[&'static str]) -> Result<Self, Error> {
        Self::with_mode(MetricsMode::Everything, crawlers, ranges)
    }

    /// The same, or metrics of which only [`names::ALWAYS`] are counted and shown.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_mode(
        counting: MetricsMode,
        crawlers: &[Crawler],
        ranges: &[&'static str],
    ) -> Result<Self, Error> {
        Ok(Self(Arc::new(MetricFamilies::register(
            counting,
            crawlers,
            ranges,
            Registry::new(),
        )?)))
    }

    /// Everything in the Prometheus text format 0.0.4, [`TEXT_FORMAT`].
    pub fn render(&self) -> String {
        self.0.policy.sweep();
        let mut families = self.0.registry.gather();
        if self.0.mode == MetricsMode::Nothing {
            families.retain(|family| {
                names::ALWAYS
                    .iter()
                    .any(|always| always.name == family.name())
            });
        }
        let mut text = String::with_capacity(64 << 10);
        // Families without series are left out by `gather`; the text is written as far as it is valid.
        let _ = TextEncoder::new().encode_utf8(&families, &mut text);
        process::render(&mut text);
        text
    }

    /// A crawler's place; names that are not configured are anonymous.
    pub fn crawler_index(&self, name: &str) -> CrawlerIndex {
        let place = self
            .0
            .crawlers
            .iter()
            .position(|series| series.crawler.as_str() == name);
        place
            .and_then(|place| u16::try_from(place).ok())
            .map_or(CrawlerIndex::ANONYMOUS, CrawlerIndex)
    }

    /// Counts a client connection as open for as long as the value lives.
    pub fn track_connection(&self) -> OpenConnection {
        OpenConnection(self.incremented_gauge(|families| &families.connections))
    }

    /// Counts a tunnel as open for as long as the value lives.
    pub fn track_tunnel(&self) -> OpenTunnel {
        OpenTunnel(self.incremented_gauge(|families| &families.tunnels))
    }

    /// Counts a CONNECT by what was decided of it.
    pub fn record_tunnel_verdict(&self, verdict: TunnelVerdictLabel) {
        increment(
            self.enabled_families()
                .and_then(|families| families.tunnel_verdicts.get(verdict as usize)),
        );
    }

    /// Counts a body that was looked at before it was sent on.
    pub fn record_document(&self, outcome: DocumentOutcome) {
        increment(
            self.enabled_families()
                .and_then(|families| families.documents.get(outcome as usize)),
        );
    }

    /// Counts a tunnel by what its ClientHello says.
    pub fn record_sni_check(&self, check: SniCheck) {
        increment(
            self.enabled_families()
                .and_then(|families| families.sni_checks.get(check as usize)),
        );
    }

    /// Counts a head that was refused before it became a request.
    pub fn record_head_rejection(&self, reason: Reason) {
        let Some(families) = self.enabled_families() else {
            return;
        };
        increment(
            families
                .head_rejections
                .counter(reason.index(), || [reason.as_str()]),
        );
    }

    /// Counts a connection that was closed because it speaks another protocol.
    pub fn record_foreign_bytes(&self, kind: ForeignBytesKind) {
        increment(
            self.enabled_families()
                .and_then(|families| families.foreign_bytes.get(kind as usize)),
        );
    }

    /// Counts an address that was not dialled; a range that is not one of those given to [`Self::new`] is `other`.
    pub fn record_refused_address(&self, range: &str) {
        let Some(MetricFamilies {
            addresses_refused: counters,
            ..
        }) = self.enabled_families()
        else {
            return;
        };
        let known = counters.iter().find(|(name, _)| *name == range);
        increment(known.or(counters.last()).map(|(_, counter)| counter));
    }

    /// A request begins to wait for its turn.
    pub fn inc_held(&self) {
        self.enabled_families()
            .iter()
            .for_each(|families| families.hold.held.inc());
    }

    /// It does not wait any more.
    pub fn dec_held(&self) {
        self.enabled_families()
            .iter()
            .for_each(|families| families.hold.held.dec());
    }

    /// Its client has left meanwhile.
    pub fn record_held_disconnect(&self, crawler: &Crawler) {
        let place = self.crawler_index(crawler.as_str());
        let families = self.enabled_families();
        increment(
            families
                .and_then(|f| f.crawler_series(place))
                .map(|series| &series.held_disconnects),
        );
    }

    /// A request goes sooner than its host's robots.txt asks, by the policy's cap.
    pub fn record_capped_crawl_delay(&self) {
        increment(
            self.enabled_families()
                .map(|families| &families.hold.capped),
        );
    }

    /// So many stops are in force.
    pub fn set_stops(&self, count: usize) {
        let families = self.enabled_families();
        families
            .iter()
            .for_each(|f| f.hold.stops.set(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    /// What the store remembers: hosts, those of them that rest, slots that are taken.
    pub fn set_hosts(&self, tracked: usize, backing_off: usize, leases: usize) {
        let Some(MetricFamilies { hold, .. }) = self.enabled_families() else {
            return;
        };
        for (gauge, count) in [
            (&hold.tracked, tracked),
            (&hold.backing_off, backing_off),
            (&hold.leases, leases),
        ] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts a host that seems to have banned this proxy.
    pub fn record_ban_suspicion(&self) {
        increment(self.enabled_families().map(|families| &families.hold.bans));
    }

    /// Counts a TLS handshake with an origin whose certificate was not verified.
    pub fn record_unverified_upstream(&self) {
        increment(
            self.enabled_families()
                .map(|families| &families.upstream_unverified),
        );
    }

    /// Counts a fetch of a robots.txt, by the place of its ending in [`labels::ROBOTS_RESULTS`].
    pub fn record_robots_fetch(&self, ending: usize) {
        increment(
            self.enabled_families()
                .and_then(|families| families.robots_fetches.get(ending)),
        );
    }

    /// So many hosts' robots.txt are remembered.
    pub fn set_robots_cache_entries(&self, hosts: u64) {
        let families = self.enabled_families();
        families.iter().for_each(|f| {
            f.robots_cache_entries
                .set(i64::try_from(hosts).unwrap_or(i64::MAX))
        });
    }

    /// Counts spans that a collector has taken.
    pub fn add_exported_spans(&self, count: u64) {
        self.0.spans_exported.inc_by(count);
    }

    /// Counts spans that no collector will see.
    pub fn add_lost_spans(&self, why: SpanLossReason, count: u64) {
        if let Some(counter) = self.0.spans_lost.get(why as usize) {
            counter.inc_by(count);
        }
    }

    /// Counts a panic; for whoever catches it.
    pub fn record_panic(&self) {
        self.0.panics.inc();
    }

    /// The counter of log lines that were lost.
    pub(crate) fn log_dropped_counter(&self) -> IntCounter {
        self.0.log_dropped.clone()
    }

    pub(crate) fn families(&self) -> &MetricFamilies {
        &self.0
    }

    /// The families, if requests, connections and hosts are counted.
    pub(crate) fn enabled_families(&self) -> Option<&MetricFamilies> {
        (self.0.mode == MetricsMode::Everything).then_some(&self.0)
    }

    /// A gauge, one higher.
    fn incremented_gauge(&self, of: impl Fn(&MetricFamilies) -> &IntGauge) -> Option<IntGauge> {
        let gauge = self.enabled_families().map(of)?;
        gauge.inc();
        Some(gauge.clone())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// An open client connection; see [`Metrics::track_connection`].
#[must_use]
pub struct OpenConnection(Option<IntGauge>);

impl fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenConnection")
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.iter().for_each(IntGauge::dec);
    }
}

/// An open tunnel; see [`Metrics::track_tunnel`].
#[must_use]
pub struct OpenTunnel(Option<IntGauge>);

impl fmt::Debug for OpenTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenTunnel")
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.0.iter().for_each(IntGauge::dec);
    }
}

impl MetricFamilies {
    fn register(
        counting: MetricsMode,
        crawlers: &[Crawler],
        ranges: &[&'static str],
        registry: Registry,
    ) -> Result<Self, Error> {
        let new = &Registrar(&registry);
        let build = new.gauges(&names::BUILD_INFO)?;
        build
            .get_metric_with_label_values(&[env!("CARGO_PKG_VERSION")])?
            .set(1);
        let durations = new.histograms(&names::REQUEST_DURATION)?;
        Ok(Self {
            crawlers: crawler_series(new, crawlers)?,
            request_duration: ResponseSource::ALL
                .into_iter()
                .map(|source| durations.get_metric_with_label_values(&[source.as_str()]))
                .collect::<Result<_, _>>()?,
            decision_duration: new.histogram(&names::DECISION_DURATION)?,
            upstream_ttfb: new.histogram(&names::UPSTREAM_TTFB)?,
            dns_duration: new.histogram(&names::DNS_DURATION)?,
            connect_duration: new.histogram(&names::CONNECT_DURATION)?,
            upstream_responses: upstream_responses(new)?,
            upstream_errors: new
                .closed_counters(&names::UPSTREAM_ERRORS, &labels::UPSTREAM_ERRORS)?,
            bytes: ByteCounters::register(new)?,
            connections: new.gauge(&names::CONNECTIONS)?,
            tunnels: new.gauge(&names::TUNNELS)?,
            tunnel_verdicts: new.closed_counters(
                &names::TUNNEL_VERDICTS,
                &TunnelVerdictLabel::ALL.map(TunnelVerdictLabel::as_str),
            )?,
            documents: new.closed_counters(
                &names::DOCUMENTS,
                &DocumentOutcome::ALL.map(DocumentOutcome::as_str),
            )?,
            sni_checks: new
                .closed_counters(&names::SNI_CHECKS, &SniCheck::ALL.map(SniCheck::as_str))?,
            inflight: new.gauge(&names::INFLIGHT_REQUESTS)?,
            hold: HoldFamilies::register(new)?,
            addresses_refused: addresses_refused(new, ranges)?,
            upstream_unverified: new.counter(&names::UPSTREAM_UNVERIFIED)?,
            robots_fetches: new.closed_counters(&names::ROBOTS_FETCHES, &labels::ROBOTS_RESULTS)?,
            robots_cache_entries: new.gauge(&names::ROBOTS_CACHE_ENTRIES)?,
            head_rejections: head_rejections(new)?,
            foreign_bytes: new.closed_counters(
                &names::FOREIGN_BYTES,
                &ForeignBytesKind::ALL.map(ForeignBytesKind::as_str),
            )?,
            log_dropped: new.counter(&names::DECISION_LOG_DROPPED)?,
            spans_exported: new.counter(&names::TRACE_SPANS_EXPORTED)?,
            spans_lost: new.closed_counters(
                &names::TRACE_SPANS_DROPPED,
                &SpanLossReason::ALL.map(SpanLossReason::as_str),
            )?,
            panics: new.counter(&names::PANICS)?,
            tls: TlsFamilies::register(new)?,
            feed: FeedFamilies::register(new)?,
            ledger: LedgerFamilies::register(new)?,
            policy: PolicyFamilies::register(new, counting)?,
            mode: counting,
            registry: registry.clone(),
        })
    }

    fn crawler_series(&self, index: CrawlerIndex) -> Option<&CrawlerSeries> {
        self.crawlers.get(usize::from(index.0))
    }
}

fn crawler_series(
    new: &Registrar<'_>,
    crawlers: &[Crawler],
) -> Result<Box<[CrawlerSeries]>, Error> {
    let decisions = new.counters(&names::DECISIONS)?;
    let requests = new.counters(&names::REQUESTS)?;
    let repeats = new.counters(&names::REPEAT_REJECTIONS)?;
    let left = new.counters(&names::HELD_DISCONNECTS)?;
    let tls_failures = new.counters(&names::CLIENT_TLS_FAILURES)?;
    let all = [Crawler::anonymous()]
        .into_iter()
        .chain(crawlers.iter().cloned());
    let series = all.map(|crawler| {
        Ok(CrawlerSeries {
            decisions: CounterTable::new(&decisions, labels::DECISION_SLOTS),
            requests: CounterTable::new(&requests, labels::REQUEST_SLOTS),
            repeats: repeats.get_metric_with_label_values(&[crawler.as_str()])?,
            held_disconnects: left.get_metric_with_label_values(&[crawler.as_str()])?,
            tls_failures: tls_failures.get_metric_with_label_values(&[crawler.as_str()])?,
            crawler,
        })
    });
    let series: Box<[CrawlerSeries]> = series.collect::<Result<_, Error>>()?;
    series.iter().for_each(CrawlerSeries::init_zeros);
    Ok(series)
}

fn upstream_responses(new: &Registrar<'_>) -> Result<Box<[IntCounter]>, Error> {
    let counters = new.counters(&names::UPSTREAM_RESPONSES)?;
    let pairs = labels::CODE_CLASSES
        .into_iter()
        .flat_map(|class| ContentFamily::ALL.map(|family| [class, family.as_str()]));
    pairs
        .map(|pair| counters.get_metric_with_label_values(&pair))
        .collect()
}

fn addresses_refused(
    new: &Registrar<'_>,
    ranges: &[&'static str],
) -> Result<Box<[(&'static str, IntCounter)]>, Error> {
    let ranges: Vec<&'static str> = ranges.iter().copied().chain([labels::OTHER]).collect();
    let counters = new.closed_counters(&names::ADDRESSES_REFUSED, &ranges)?;
    Ok(ranges.into_iter().zip(counters).collect())
}

fn head_rejections(new: &Registrar<'_>) -> Result<CounterTable, Error> {
    let places = CounterTable::new(&new.counters(&names::HEAD_REJECTIONS)?, Reason::ALL.len());
    for reason in labels::HEAD_REASONS {
        places.counter(reason.index(), || [reason.as_str()]);
    }
    Ok(places)
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
    }

    fn decision_counter(
        &self,
        stage: crate::model::stage::Stage,
        verdict: labels::VerdictLabel,
        reason: Option<Reason>,
    ) -> Option<&IntCounter> {
        self.decisions
            .counter(labels::decision_slot(stage, verdict, reason), || {
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

impl HoldFamilies {
    fn register(new: &Registrar<'_>) -> Result<Self, Error> {
        Ok(Self {
            seconds: new.histogram(&names::HOLD)?,
            held: new.gauge(&names::HELD_REQUESTS)?,
            tracked: new.gauge(&names::HOSTS_TRACKED)?,
            backing_off: new.gauge(&names::HOSTS_BACKING_OFF)?,
            bans: new.counter(&names::BAN_SUSPICIONS)?,
            leases: new.gauge(&names::LEASES)?,
            capped: new.counter(&names::CRAWL_DELAY_CAPPED)?,
            stops: new.gauge(&names::STOPS)?,
        })
    }
}

impl ByteCounters {
    fn register(new: &Registrar<'_>) -> Result<Self, Error> {
        let counters = new.counters(&names::BYTES)?;
        let counter = |direction, side| counters.get_metric_with_label_values(&[direction, side]);
        Ok(Self {
            from_client: counter("received", "client")?,
            to_client: counter("sent", "client")?,
            from_origin: counter("received", "origin")?,
            to_origin: counter("sent", "origin")?,
        })
    }
}
