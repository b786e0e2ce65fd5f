//! The metric families: one row for each, with its name, labels and help text.
//!
//! A row declares the handle of the family in `MetricFamilies` and registers it. What counts in it is a method of
//! [`super::Metrics`], or `completion.rs` for what is counted at the end of a request. The values of labels are in
//! [`super::labels`], and the names of `process_*` in `process.rs`.

use prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::ledger::code::OmnifindCode;
use crate::ledger::event::LedgerEventKind;
use crate::ledger::removal::RemovalCauseKind;
use crate::model::crawl_status::CrawlStatus;
use crate::robots::agent::RobotsTokenSource;
use crate::robots::fetch_outcome::RobotsFetchOutcome;

use super::content::ContentFamily;
use super::labels::{
    ByteDirection, CodeClass, ConnectionSide, DocumentOutcome, FeedResult, FeedTarget,
    ForeignBytesKind, ForwardResult, Http2ErrorCode, Http2ErrorScope, Http2Limit, LinkStateLabel,
    MemberStateLabel, OriginHttp2Failure, PartitionStateLabel, ProxyHeaderFailure, ReloadResult,
    ResponseSource, SniCheck, SpanLossReason, StoreOperation, StoreResult, TakeoverReason, TlsSide,
    TunnelVerdictLabel, UpstreamErrorLabel,
};
use super::series::{Counters, Error, Gauges, Histograms, Registered};

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// A count that only increases.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Seconds, in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// The description of a metric family.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamily {
    pub name: &'static str,
    /// The text of `# HELP`.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The type.
    pub kind: MetricKind,
    /// `true` if it exists with `telemetry.metrics: none`, too; it must cost requests nothing.
    pub essential: bool,
}

/// 1 µs to 10 ms: a decision needs no network.
const DECISION_BUCKETS: &[f64] = &[
    0.000_001,
    0.000_002_5,
    0.000_005,
    0.000_01,
    0.000_025,
    0.000_05,
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
];

/// 5 ms to 60 s: everything that waits for another party.
pub(super) const WAIT_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0,
];

/// Declares the families: `field: Type, "name", [labels], "help";`. `in BUCKETS` after the type sets the buckets of a
/// histogram, and `essential = true` before the help text keeps the family with `telemetry.metrics: none`.
macro_rules! metric_families {
    ($(
        $field:ident: $type:ty $(, in $buckets:ident)?, $name:literal, [$($label:literal),*],
        $(essential = $essential:literal,)? $help:literal;
    )+) => {
        /// The handles of all families.
        pub(crate) struct MetricFamilies {
            $(pub(super) $field: $type,)+
        }

        impl MetricFamilies {
            /// Registers every family.
            pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
                Ok(Self {
                    $($field: Registered::register(registry, &family::$field)?,)+
                })
            }
        }

        #[allow(non_upper_case_globals, reason = "a constant has the name of its field")]
        mod family {
            use super::*;

            $(pub(super) const $field: MetricFamily = MetricFamily {
                name: $name,
                help: $help,
                labels: &[$($label),*],
                kind: <$type as Registered>::KIND $(.with_buckets($buckets))?,
                essential: false $(|| $essential)?,
            };)+
        }

        /// Every family except `process_*`.
        pub const ALL: &[MetricFamily] = &[$(family::$field),+];
    };
}

metric_families! {
    decisions: IntCounterVec, "crawlgate_decisions_total", ["stage", "verdict", "reason", "crawler"],
        "Requests by verdict, counted once, at the stage that ended them.";
    rule_matched: IntCounterVec, "crawlgate_rule_matched_total", ["rule", "mode"],
        "Requests that the rule matched: a group that applied, or a filter that matched; in mode shadow, that it would \
         have matched.";
    rule_decided: IntCounterVec, "crawlgate_rule_decided_total", ["rule", "mode", "verdict"],
        "Requests whose verdict was decided by this rule; in mode shadow, would have been.";
    requests: IntCounterVec, "crawlgate_requests_total", ["crawler", "method", "code", "source"],
        "Requests by the status sent and the source of the response; code none: the client left before a response.";
    request_duration: Histograms<ResponseSource>, "crawlgate_request_duration_seconds", ["source"],
        "Time from a request's head to the last byte of its response, by the source of the response.";
    decision_duration: Histogram, in DECISION_BUCKETS, "crawlgate_decision_duration_seconds", [],
        "Time from a request's head to the verdict of the request stage.";
    upstream_ttfb: Histogram, "crawlgate_upstream_ttfb_seconds", [],
        "Time from the decision to send a request, after any wait, to the origin's response head; includes connecting.";
    dns_duration: Histogram, "crawlgate_dns_duration_seconds", [],
        "Time of a request's name lookup, if it made one.";
    connect_duration: Histogram, "crawlgate_connect_duration_seconds", [],
        "Time until a new connection to an origin was open, if a request made one.";
    tls_handshakes: Histograms<TlsSide>, "crawlgate_tls_handshake_seconds", ["side"],
        "Time of successful TLS handshakes, with clients inside their tunnels and with origins.";
    upstream_responses: Counters<(CodeClass, ContentFamily)>,
        "crawlgate_upstream_responses_total", ["code_class", "content_family"],
        "Response heads received from origins.";
    upstream_errors: Counters<UpstreamErrorLabel>, "crawlgate_upstream_errors_total", ["error"],
        "Exchanges with origins that failed, by RFC 9209 error type.";
    upstream_http2_connections: IntCounter, "crawlgate_upstream_http2_connections_total", [],
        "HTTP/2 connections to origins that were opened; each serves several requests at once.";
    upstream_http2_failures: Counters<OriginHttp2Failure>,
        "crawlgate_upstream_http2_failures_total", ["reason"],
        "HTTP/2 streams to origins that failed, and connections that were closed because of the origin.";
    bytes: Counters<(ByteDirection, ConnectionSide)>, "crawlgate_bytes_total", ["direction", "side"],
        "Body bytes received from and sent to clients and origins.";
    connections: IntGauge, "crawlgate_connections", [],
        "Open client connections.";
    connections_limit: IntGauge, "crawlgate_connections_limit", [],
        "The most client connections at once: limits.connections, or fewer if the limit of open files is too low.";
    tunnels: IntGauge, "crawlgate_tunnels", [],
        "Tunnels that are open or being connected, including those that carry plain HTTP.";
    tunnel_verdicts: Counters<TunnelVerdictLabel>, "crawlgate_tunnels_total", ["verdict"],
        "CONNECT requests by verdict; undecided: refused because the policy has conditions on what a tunnel hides.";
    documents: Counters<DocumentOutcome>, "crawlgate_documents_total", ["outcome"],
        "Response bodies that were inspected before they were sent on. read; changed (a document may be both); \
         unreadable: in a content coding that cannot be decoded, corrupt, or a part only, and treated as empty; \
         too_large: sent on without inspecting its whole content, which unmodified or duplicate needed.";
    sni_checks: Counters<SniCheck>, "crawlgate_sni_checks_total", ["category"],
        "Tunnels to TLS ports by how their ClientHello compares with the CONNECT host. All are closed except match, \
         ech (the outer name matches; a hidden name cannot be seen) and, if the host is an address, none.";
    client_tls_failures: IntCounterVec, "crawlgate_client_tls_failures_total", ["crawler", "cause"],
        "TLS handshakes inside tunnels that clients aborted or failed. distrust: they rejected the proxy's certificate, \
         by an alert or by leaving before they ever completed a handshake; left: they left, but had completed others.";
    leaf_certificates: IntCounter, "crawlgate_leaf_certificates_total", [],
        "Certificates issued for hosts.";
    certificate_waits: IntCounter, "crawlgate_mint_waits_total", [],
        "TLS handshakes that had to wait for a certificate because their client requested too many at once.";
    ca_not_after: IntGauge, "crawlgate_ca_not_after_timestamp_seconds", [], essential = true,
        "Unix time at which the certificate authority in use expires; 0 if TLS is not intercepted.";
    inflight: IntGauge, "crawlgate_inflight_requests", [],
        "Requests whose response is not complete.";
    hold_time: Histogram, "crawlgate_hold_seconds", [],
        "Time for which a request was held for its host's turn, a stop or robots.txt, if it had to wait.";
    held: IntGauge, "crawlgate_held_requests", [],
        "Requests that wait for a slot of their host, for the end of a stop, or for a robots.txt that is being fetched or could not be.";
    held_disconnects: IntCounterVec, "crawlgate_held_disconnects_total", ["crawler"],
        "Clients that left while their request was held.";
    stops: IntGauge, "crawlgate_stops", [],
        "Active stops: hosts, crawlers and rules that an operator has stopped.";
    hosts_tracked: IntGauge, "crawlgate_hosts_tracked", [],
        "Hosts, addresses and domains with pacing state; updated every few seconds.";
    hosts_backing_off: IntGauge, "crawlgate_hosts_backing_off", [],
        "Tracked hosts that are backing off: they sent 429 or 503, or failed three times in a row; updated every few \
         seconds.";
    ban_suspicions: IntCounter, "crawlgate_ban_suspicions_total", [],
        "Times that a host seemed to have banned this proxy, by a burst of 403 or a challenge (cf-mitigated); at most \
         once in ten minutes for each host.";
    leases: IntGauge, "crawlgate_leases", [],
        "Slots of hosts and addresses that requests hold; updated every few seconds.";
    crawl_delay_capped: IntCounter, "crawlgate_crawl_delay_capped_total", [],
        "Requests sent sooner than the Crawl-delay or Request-rate of their host allows, because of \
         robots.crawl_delay_cap.";
    addresses_refused: IntCounterVec, "crawlgate_addresses_refused_total", ["range"],
        "Resolved or literal addresses that were not connected to, by their special-purpose range.";
    upstream_unverified: IntCounter, "crawlgate_upstream_unverified_total", [],
        "TLS handshakes with origins whose certificate was not verified: tls.verify_upstream is off, or a rule has \
         verify: skip.";
    robots_fetches: Counters<RobotsFetchOutcome>, "crawlgate_robots_fetches_total", ["result"],
        "Fetches of a host's robots.txt by outcome; one fetch serves all requests that wait for it.";
    robots_tokens: Counters<RobotsTokenSource>, "crawlgate_robots_tokens_total", ["source"],
        "Requests for which robots.txt was obeyed, by the source of the product token: policy (robots.agent), crawler \
         (robots_agent), compatible (the product after compatible; in the User-Agent), first (its first product), or \
         default (there is none).";
    robots_cache_entries: IntGauge, "crawlgate_robots_cache_entries", [],
        "Hosts whose robots.txt, or the lack of one, is cached; updated every few seconds.";
    depth_unknown: IntCounter, "crawlgate_depth_unknown_total", [],
        "Requests whose depth is unknown under a policy with max_depth or a condition on depth, which then have no effect.";
    ledger_urls: Gauges<CrawlStatus>, "crawlgate_ledger_urls", ["status"],
        "URLs in the ledger, per crawler, by their last Crawl-Status; updated every few seconds.";
    ledger_codes: Gauges<OmnifindCode>, "crawlgate_ledger_codes", ["code"],
        "URLs in the ledger, per crawler, by OmniFind's code of their last refusal or failure; updated every few seconds.";
    ledger_events: Counters<LedgerEventKind>, "crawlgate_ledger_events_total", ["kind"],
        "Events that the ledger has written to its feed since the start of the process; updated every few seconds.";
    ledger_pending_removals: Gauges<RemovalCauseKind>, "crawlgate_ledger_pending_removals", ["cause"],
        "URLs whose removal from the index is not ordered yet (ledger.removal_guard); updated every few seconds.";
    ledger_held_removals: Gauges<RemovalCauseKind>, "crawlgate_ledger_held_removals", ["cause"], essential = true,
        "Pending removals that are held until an operator confirms them; updated every few seconds.";
    ledger_queue: IntGauge, "crawlgate_ledger_queue", [],
        "Changes of the ledger that are not on disk yet, limited by ledger.queue; updated every few seconds.";
    ledger_waits: IntCounter, "crawlgate_ledger_waits_total", [],
        "Requests that waited because the ledger's queue was full.";
    ledger_dropped: IntCounter, "crawlgate_ledger_dropped_total", [], essential = true,
        "Observations of URLs that the ledger has lost because the disk was too slow or failed.";
    ledger_failures: IntCounter, "crawlgate_ledger_failures_total", [], essential = true,
        "Failed attempts to write the ledger; each is repeated after a second, unless the writer has panicked.";
    ledger_broken: IntGauge, "crawlgate_ledger_broken", [], essential = true,
        "1 if the ledger's writer has panicked: nothing is recorded until the next start.";
    policy_info: IntGaugeVec, "crawlgate_policy_info", ["policy", "revision"], essential = true,
        "The active policy; always 1.";
    policy_last_reload_success: IntGauge, "crawlgate_policy_last_reload_success", [], essential = true,
        "1 if the last attempt to load the policy succeeded, else 0.";
    policy_last_reload_time: IntGauge, "crawlgate_policy_last_reload_success_timestamp_seconds", [], essential = true,
        "Unix time of the last successful load of the policy.";
    policy_reload_start: IntGauge, "crawlgate_policy_reload_start_timestamp_seconds", [], essential = true,
        "Unix time at which the reload in progress began; 0 if none is in progress. One that takes long reads a slow disk, or \
         compiles a large policy.";
    policy_reloads: Counters<ReloadResult>, "crawlgate_policy_reloads_total", ["result"], essential = true,
        "Attempts to load the policy, including the first one.";
    policy_rules: IntGauge, "crawlgate_policy_rules", [], essential = true,
        "Rules of the active policy, including groups and disabled rules.";
    policy_rules_disabled: IntGauge, "crawlgate_policy_rules_disabled", [], essential = true,
        "Disabled rules of the active policy.";
    policy_rules_inert: IntGauge, "crawlgate_policy_rules_inert", [],
        "Rules of the active policy that can never act, because nothing matches their values. `crawlgate check` reports them.";
    parent_requests: IntCounterVec, "crawlgate_parent_requests_total", ["parent"],
        "Requests and tunnels that went out through a parent proxy (egress.parents), or were to.";
    parent_failures: IntCounterVec, "crawlgate_parent_failures_total", ["parent", "error"],
        "Connections that a parent proxy did not open, each attempt with each of its proxies, by the type of the error (RFC 9209).";
    parent_up: IntGaugeVec, "crawlgate_parent_up", ["parent", "proxy"],
        "1 if the proxy of a parent can be connected to, 0 while it cannot.";
    head_rejections: IntCounterVec, "crawlgate_head_rejections_total", ["reason"],
        "Request heads that were rejected before they became a request.";
    foreign_bytes: Counters<ForeignBytesKind>, "crawlgate_foreign_bytes_total", ["reason"],
        "Connections closed because their first bytes belong to another protocol.";
    proxy_protocol_failures: Counters<ProxyHeaderFailure>, "crawlgate_proxy_protocol_failures_total", ["reason"],
        "Connections of load balancers (proxy_protocol of a listener) closed because they do not begin with a valid header \
         of the PROXY protocol.";
    http2_limits: Counters<Http2Limit>, "crawlgate_http2_limits_total", ["limit"],
        "HTTP/2 connections closed because the client exceeded a limit; write_stall: responses that the client did not read.";
    http2_errors: Counters<(Http2ErrorScope, Http2ErrorCode)>, "crawlgate_http2_errors_total", ["scope", "code"],
        "Violations of HTTP/2 by clients, by the code of the answer: RST_STREAM for a stream, GOAWAY for a connection.";
    repeat_rejections: IntCounterVec, "crawlgate_repeat_rejections_total", ["crawler"],
        "Rejections of a URL that was refused to the same crawler within the last ten minutes; a lower bound.";
    feed_events: Counters<(FeedTarget, FeedResult)>, "crawlgate_ledger_feed_events_total", ["feed", "result"], essential = true,
        "Events of the ledger delivered to ledger.events.file or .webhook; dead_letter: the webhook rejected them, and \
         they were written to the dead-letter file. An event that is sent again after a crash is counted again.";
    feed_failures: Counters<FeedTarget>, "crawlgate_ledger_feed_failures_total", ["feed"],
        "Failed attempts to deliver events of the ledger; temporary failures are retried.";
    feed_backlog: Gauges<FeedTarget>, "crawlgate_ledger_feed_behind", ["feed"],
        "Events of the ledger that are not delivered yet; updated before and after each batch.";
    fleet_forwarded: Counters<ForwardResult>, "crawlgate_fleet_forwarded_total", ["result"],
        "Attempts to forward a request to the node that owns its host. answered; moved: another node owns the host; \
         unreachable: no link to the node, nothing was sent; lost: the link broke off before an answer; refused: the \
         request ended as owner_unavailable.";
    fleet_forward: Histogram, "crawlgate_fleet_forward_seconds", [],
        "Time from forwarding a request to the head of the owner's answer, including the time for which the owner held it.";
    fleet_links: Gauges<LinkStateLabel>, "crawlgate_fleet_links", ["state"],
        "Links to other nodes: open connections, and nodes that could not be reached at the last attempt (failing).";
    fleet_members: Gauges<MemberStateLabel>, "crawlgate_fleet_members", ["state"],
        "Members of the fleet as this node sees them; silent: it has not renewed its lease for the length of a lease.";
    fleet_partitions: Gauges<PartitionStateLabel>, "crawlgate_fleet_partitions", ["state"],
        "Partitions of hosts as this node sees them: its own, those of other members, and those without an owner.";
    fleet_link_failing: IntGaugeVec, "crawlgate_fleet_link_failing", ["node"],
        "1 for each node of the fleet that could not be reached at the last attempt; no series for the others.";
    fleet_policy_revisions: IntGauge, "crawlgate_fleet_policy_revisions", [],
        "Different policies among the members that renew their lease, as this node sees them; 0 outside of a fleet.";
    fleet_lease_left: Gauge, "crawlgate_fleet_lease_left_seconds", [],
        "Time left of this node's lease, updated every second; 0: it owns nothing.";
    fleet_takeovers: Counters<TakeoverReason>, "crawlgate_fleet_takeovers_total", ["why"],
        "Partitions that this node has taken. free: it had no owner; lapsed: it was this node's until its lease ended; \
         silent: its owner did not renew its lease.";
    store_requests: Counters<(StoreOperation, StoreResult)>, "crawlgate_store_requests_total", ["op", "result"],
        "Requests to the store of the fleet. A crawler's request waits for those alone that take a part of its budget.";
    store_duration: Histograms<StoreOperation>, "crawlgate_store_duration_seconds", ["op"],
        "Time of requests to the store of the fleet, with those that failed.";
    log_dropped: IntCounter, "crawlgate_decision_log_dropped_total", [], essential = true,
        "Lines of the decision log that were lost because the log was too slow or the disk full.";
    spans_exported: IntCounter, "crawlgate_trace_spans_exported_total", [],
        "Spans that the OpenTelemetry collector has accepted; 0 unless telemetry.otlp is set.";
    spans_dropped: Counters<SpanLossReason>, "crawlgate_trace_spans_dropped_total", ["why"],
        "Spans that were lost; queue_full: more than could be sent, failed: the collector cannot be reached or responds \
         with an error, rejected: the collector accepted only others, shutdown: the proxy shut down first.";
    panics: IntCounter, "crawlgate_panics_total", [], essential = true,
        "Requests that ended in a panic.";
    build_info: IntGaugeVec, "crawlgate_build_info", ["version"], essential = true,
        "The running program; always 1.";
}

impl MetricKind {
    const fn with_buckets(self, buckets: &'static [f64]) -> Self {
        match self {
            Self::Histogram(_) => Self::Histogram(buckets),
            Self::Counter | Self::Gauge => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let names: BTreeSet<_> = ALL.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), ALL.len());
        for family in ALL {
            let name = family.name;
            assert!(name.starts_with("crawlgate_"), "{name}");
            let is_counter = family.kind == MetricKind::Counter;
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
            if matches!(family.kind, MetricKind::Histogram(_)) {
                assert!(name.ends_with("_seconds"), "{name}");
            }
        }
    }

    #[test]
    fn help_texts_are_sentences_with_single_spaces() {
        for MetricFamily { name, help, .. } in ALL {
            assert!(
                help.ends_with('.') && help.trim() == *help,
                "{name}: {help}"
            );
            assert!(
                !help.contains("  ") && !help.contains('\n'),
                "{name}: {help}"
            );
        }
    }
}
