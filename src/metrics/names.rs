//! The name, help text and labels of every metric family, each written once (operations.md, "Metrics").
//!
//! Only names: which series exist is decided in [`super::labels`], and values live in [`super::Metrics`].
//! Families of parts that are not built yet are not here. The names of `process_*` are in `process.rs`.

/// What a family holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Seconds, in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// One metric family.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamily {
    /// The name that scripts use.
    pub name: &'static str,
    /// One sentence for `# HELP`.
    pub help: &'static str,
    /// The names of its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// What it holds.
    pub kind: MetricKind,
}

/// 1 µs to 10 ms: a decision touches no network.
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

/// 5 ms to 60 s: everything that waits for somebody.
const WAIT_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0,
];

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricFamily {
    MetricFamily {
        name,
        help,
        labels,
        kind: MetricKind::Counter,
    }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricFamily {
    MetricFamily {
        name,
        help,
        labels,
        kind: MetricKind::Gauge,
    }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricFamily {
    MetricFamily {
        name,
        help,
        labels,
        kind: MetricKind::Histogram(WAIT_BUCKETS),
    }
}

/// Requests by what was decided of them.
pub const DECISIONS: MetricFamily = counter(
    "crawlgate_decisions_total",
    &["stage", "verdict", "reason", "crawler"],
    "Requests by verdict, counted once, at the stage that ended them.",
);
/// Rules that matched.
pub const RULE_MATCHED: MetricFamily = counter(
    "crawlgate_rule_matched_total",
    &["rule", "mode"],
    "Requests for which the rule matched: a group that applied, or a filter that hit; in mode shadow, would have.",
);
/// Rules that decided.
pub const RULE_DECIDED: MetricFamily = counter(
    "crawlgate_rule_decided_total",
    &["rule", "mode", "verdict"],
    "Requests whose verdict had this rule as its cause; in mode shadow, would have had.",
);
/// Requests by what was answered.
pub const REQUESTS: MetricFamily = counter(
    "crawlgate_requests_total",
    &["crawler", "method", "code", "source"],
    "Requests by the status sent and by who made the answer; code none: the client left before an answer.",
);
/// From the request's head to the last byte of its answer.
pub const REQUEST_DURATION: MetricFamily = histogram(
    "crawlgate_request_duration_seconds",
    &["source"],
    "Time from a request's head to the last byte of its answer, by who made the answer.",
);
/// From the request's head to the verdict of the request stage.
pub const DECISION_DURATION: MetricFamily = MetricFamily {
    name: "crawlgate_decision_duration_seconds",
    help: "Time from a request's head to the verdict of the request stage.",
    labels: &[],
    kind: MetricKind::Histogram(DECISION_BUCKETS),
};
/// Until the origin's response head.
pub const UPSTREAM_TTFB: MetricFamily = histogram(
    "crawlgate_upstream_ttfb_seconds",
    &[],
    "Time from a request's last sent head byte to the origin's response head.",
);
/// Name look-ups.
pub const DNS_DURATION: MetricFamily = histogram(
    "crawlgate_dns_duration_seconds",
    &[],
    "Time of a request's name look-up, if it made one.",
);
/// New connections.
pub const CONNECT_DURATION: MetricFamily = histogram(
    "crawlgate_connect_duration_seconds",
    &[],
    "Time until a new connection to an origin was open, if a request made one.",
);
/// TLS handshakes.
pub const TLS_HANDSHAKE: MetricFamily = histogram(
    "crawlgate_tls_handshake_seconds",
    &["side"],
    "Time of TLS handshakes that succeeded, with clients inside their tunnels and with origins.",
);
/// Answers of origins.
pub const UPSTREAM_RESPONSES: MetricFamily = counter(
    "crawlgate_upstream_responses_total",
    &["code_class", "content_family"],
    "Response heads received from origins.",
);
/// Failures of origins.
pub const UPSTREAM_ERRORS: MetricFamily = counter(
    "crawlgate_upstream_errors_total",
    &["error"],
    "Exchanges with origins that failed, by RFC 9209 error type.",
);
/// Body bytes.
pub const BYTES: MetricFamily = counter(
    "crawlgate_bytes_total",
    &["direction", "side"],
    "Body bytes received from and sent to clients and origins.",
);
/// Open client connections.
pub const CONNECTIONS: MetricFamily =
    gauge("crawlgate_connections", &[], "Open client connections.");
/// Documents.
pub const DOCUMENTS: MetricFamily = counter(
    "crawlgate_documents_total",
    &["outcome"],
    "Bodies looked at before they were sent on: read; changed (a document may be both); unreadable: in a content coding \
     that cannot be undone, broken, or a part only, and judged as one that says nothing; too_large: passed on without \
     a look at its whole content, which unmodified or duplicate would have judged.",
);
/// Open tunnels.
pub const TUNNELS: MetricFamily = gauge(
    "crawlgate_tunnels",
    &[],
    "Tunnels that are open or being dialled, those that carry plain HTTP included.",
);
/// CONNECTs by what was decided of them.
pub const TUNNEL_VERDICTS: MetricFamily = counter(
    "crawlgate_tunnels_total",
    &["verdict"],
    "CONNECT requests by verdict; undecided: refused because the policy judges what a tunnel hides.",
);
/// First bytes inside tunnels to TLS ports.
pub const SNI_CHECKS: MetricFamily = counter(
    "crawlgate_sni_checks_total",
    &["category"],
    "Tunnels to TLS ports by what their ClientHello says of the CONNECT host. Closed are all but match, ech (the outer \
     name matches; whether another is hidden cannot be seen) and none where the host is an address.",
);
/// Clients that did not finish TLS with us.
pub const CLIENT_TLS_FAILURES: MetricFamily = counter(
    "crawlgate_client_tls_failures_total",
    &["crawler"],
    "TLS handshakes inside tunnels that clients broke off or failed, most often because they do not trust our \
     certificate authority.",
);
/// Certificates that were made.
pub const LEAF_CERTIFICATES: MetricFamily = counter(
    "crawlgate_leaf_certificates_total",
    &[],
    "Certificates that were made for hosts.",
);
/// Handshakes that waited for a certificate.
pub const MINT_WAITS: MetricFamily = counter(
    "crawlgate_mint_waits_total",
    &[],
    "TLS handshakes that had to wait for a certificate because their client had too many made at once.",
);
/// When the signing authority ends.
pub const CA_NOT_AFTER: MetricFamily = gauge(
    "crawlgate_ca_not_after_timestamp_seconds",
    &[],
    "Unix time at which the certificate authority that signs expires; 0 if TLS is not looked into.",
);
/// Requests under way.
pub const INFLIGHT_REQUESTS: MetricFamily = gauge(
    "crawlgate_inflight_requests",
    &[],
    "Requests whose answer is not complete.",
);
/// Waits for politeness.
pub const HOLD: MetricFamily = histogram(
    "crawlgate_hold_seconds",
    &[],
    "Time for which a request was held until its host's turn came, if it had to wait.",
);
/// Requests that wait.
pub const HELD_REQUESTS: MetricFamily = gauge(
    "crawlgate_held_requests",
    &[],
    "Requests that wait for their host's turn, or for the end of a stop.",
);
/// Clients that did not wait.
pub const HELD_DISCONNECTS: MetricFamily = counter(
    "crawlgate_held_disconnects_total",
    &["crawler"],
    "Clients that left while their request was held.",
);
/// Stops in force.
pub const STOPS: MetricFamily = gauge(
    "crawlgate_stops",
    &[],
    "Stops in force: hosts, crawlers and rules that an operator has stopped.",
);
/// Hosts that are remembered.
pub const HOSTS_TRACKED: MetricFamily = gauge(
    "crawlgate_hosts_tracked",
    &[],
    "Hosts, addresses and domains whose pace is remembered; counted every few seconds.",
);
/// Hosts that rest.
pub const HOSTS_BACKING_OFF: MetricFamily = gauge(
    "crawlgate_hosts_backing_off",
    &[],
    "Those of them that rest now: they have asked for it by 429 or 503, or failed three times in a row; counted every \
     few seconds.",
);
/// Hosts that do not want us any more.
pub const BAN_SUSPICIONS: MetricFamily = counter(
    "crawlgate_ban_suspicions_total",
    &[],
    "Times that a host seemed to have banned this proxy, by a burst of 403 or a challenge (cf-mitigated); once in ten \
     minutes for each host.",
);
/// Slots that are taken.
pub const LEASES: MetricFamily = gauge(
    "crawlgate_leases",
    &[],
    "Slots of hosts and addresses that requests hold; counted every few seconds.",
);
/// Delays of robots.txt that were shortened.
pub const CRAWL_DELAY_CAPPED: MetricFamily = counter(
    "crawlgate_crawl_delay_capped_total",
    &[],
    "Requests that went sooner than the Crawl-delay or Request-rate of their host asks, by robots.crawl_delay_cap.",
);
/// Addresses that must not be dialled.
pub const ADDRESSES_REFUSED: MetricFamily = counter(
    "crawlgate_addresses_refused_total",
    &["range"],
    "Resolved or literal addresses that were not dialled, by the special range they are in.",
);
/// Handshakes with origins that may be anybody.
pub const UPSTREAM_UNVERIFIED: MetricFamily = counter(
    "crawlgate_upstream_unverified_total",
    &[],
    "TLS handshakes with origins whose certificate was not verified: tls.verify_upstream is off, or a rule says verify: \
     skip.",
);
/// Fetches of robots.txt.
pub const ROBOTS_FETCHES: MetricFamily = counter(
    "crawlgate_robots_fetches_total",
    &["result"],
    "Fetches of a host's robots.txt by how they ended; one serves all requests that wait for it.",
);
/// Hosts whose robots.txt is remembered.
pub const ROBOTS_CACHE_ENTRIES: MetricFamily = gauge(
    "crawlgate_robots_cache_entries",
    &[],
    "Hosts whose robots.txt, or the lack of one, is remembered; counted every few seconds.",
);
/// URLs that are remembered.
pub const LEDGER_URLS: MetricFamily = gauge(
    "crawlgate_ledger_urls",
    &["status"],
    "URLs that the ledger has, a crawler each, by what became of them last (Crawl-Status); counted every few seconds.",
);
/// What was told of them.
pub const LEDGER_EVENTS: MetricFamily = counter(
    "crawlgate_ledger_events_total",
    &["kind"],
    "Events that the ledger has written for those who keep an index; counted every few seconds.",
);
/// What the disk does not have yet.
pub const LEDGER_QUEUE: MetricFamily = gauge(
    "crawlgate_ledger_queue",
    &[],
    "Changes of the ledger that are not on the disk yet, of ledger.queue; counted every few seconds.",
);
/// Requests that waited for the disk.
pub const LEDGER_WAITS: MetricFamily = counter(
    "crawlgate_ledger_waits_total",
    &[],
    "Requests that waited because so many changes of the ledger were to be written.",
);
/// What the ledger does not know.
pub const LEDGER_DROPPED: MetricFamily = counter(
    "crawlgate_ledger_dropped_total",
    &[],
    "Looks at URLs that the ledger does not remember: the disk too slow, or it fails.",
);
/// The disk fails.
pub const LEDGER_FAILURES: MetricFamily = counter(
    "crawlgate_ledger_failures_total",
    &[],
    "Attempts to write the ledger that failed; each is made again after a second, unless its writer broke down.",
);
/// The writer has panicked.
pub const LEDGER_BROKEN: MetricFamily = gauge(
    "crawlgate_ledger_broken",
    &[],
    "1 if the ledger's writer has broken down: nothing is remembered until the next start.",
);
/// The policy in force.
pub const POLICY_INFO: MetricFamily = gauge(
    "crawlgate_policy_info",
    &["policy", "revision"],
    "The policy in force; always 1.",
);
/// Whether the newest policy could be loaded.
pub const POLICY_LAST_RELOAD_SUCCESS: MetricFamily = gauge(
    "crawlgate_policy_last_reload_success",
    &[],
    "1 if the last attempt to load the policy succeeded, else 0.",
);
/// When the policy in force was loaded.
pub const POLICY_LAST_RELOAD_TIMESTAMP: MetricFamily = gauge(
    "crawlgate_policy_last_reload_success_timestamp_seconds",
    &[],
    "Unix time of the last successful load of the policy.",
);
/// Attempts to load.
pub const POLICY_RELOADS: MetricFamily = counter(
    "crawlgate_policy_reloads_total",
    &["result"],
    "Attempts to load the policy, the first one included.",
);
/// Size of the policy.
pub const POLICY_RULES: MetricFamily = gauge(
    "crawlgate_policy_rules",
    &[],
    "Rules of the policy in force, groups and disabled rules included.",
);
/// Disabled rules.
pub const POLICY_RULES_DISABLED: MetricFamily = gauge(
    "crawlgate_policy_rules_disabled",
    &[],
    "Rules of the policy in force that are disabled.",
);
/// Heads that never became a request.
pub const HEAD_REJECTIONS: MetricFamily = counter(
    "crawlgate_head_rejections_total",
    &["reason"],
    "Request heads that were refused before they became a request.",
);
/// Other protocols on the port.
pub const FOREIGN_BYTES: MetricFamily = counter(
    "crawlgate_foreign_bytes_total",
    &["reason"],
    "Connections closed because their first bytes belong to another protocol.",
);
/// Crawlers that do not learn.
pub const REPEAT_REJECTIONS: MetricFamily = counter(
    "crawlgate_repeat_rejections_total",
    &["crawler"],
    "Rejections of a URL that the same crawler was refused within the last ten minutes; at least this many.",
);
/// Events on their way out.
pub const LEDGER_FEED_EVENTS: MetricFamily = counter(
    "crawlgate_ledger_feed_events_total",
    &["feed", "result"],
    "Events of the ledger that are through with ledger.events.file or .webhook; dead_letter: the webhook did not take \
     them, and they were put aside. One that is sent again after a crash counts again.",
);
/// Tries that failed.
pub const LEDGER_FEED_FAILURES: MetricFamily = counter(
    "crawlgate_ledger_feed_failures_total",
    &["feed"],
    "Tries to deliver events of the ledger that failed; what can help is tried again.",
);
/// Events that wait.
pub const LEDGER_FEED_BEHIND: MetricFamily = gauge(
    "crawlgate_ledger_feed_behind",
    &["feed"],
    "Events of the ledger that are not delivered yet; looked at when a batch begins and ends.",
);
/// Lost log lines.
pub const DECISION_LOG_DROPPED: MetricFamily = counter(
    "crawlgate_decision_log_dropped_total",
    &[],
    "Lines of the decision log that were not written: log too slow, disk full.",
);
/// Spans that reached a collector.
pub const TRACE_SPANS_EXPORTED: MetricFamily = counter(
    "crawlgate_trace_spans_exported_total",
    &[],
    "Spans that the OpenTelemetry collector has taken; 0 unless telemetry.otlp is set.",
);
/// Lost spans.
pub const TRACE_SPANS_DROPPED: MetricFamily = counter(
    "crawlgate_trace_spans_dropped_total",
    &["why"],
    "Spans that no collector will see; queue_full: more were made than could be sent, failed: it cannot be reached or \
     answers with an error, rejected: it took the others only, shutdown: the proxy had to end first.",
);
/// Panics.
pub const PANICS: MetricFamily = counter(
    "crawlgate_panics_total",
    &[],
    "Requests that ended in a panic.",
);
/// The running program.
pub const BUILD_INFO: MetricFamily = gauge(
    "crawlgate_build_info",
    &["version"],
    "The running program; always 1.",
);

/// The families that are there with `telemetry.metrics: none`, too: what nobody may miss, and no request pays for.
pub const ALWAYS: &[MetricFamily] = &[
    POLICY_INFO,
    POLICY_LAST_RELOAD_SUCCESS,
    POLICY_LAST_RELOAD_TIMESTAMP,
    POLICY_RELOADS,
    POLICY_RULES,
    POLICY_RULES_DISABLED,
    CA_NOT_AFTER,
    LEDGER_FEED_EVENTS,
    LEDGER_DROPPED,
    LEDGER_FAILURES,
    LEDGER_BROKEN,
    DECISION_LOG_DROPPED,
    PANICS,
    BUILD_INFO,
];

/// Every family of this file, in the order of the documentation.
pub const ALL: &[MetricFamily] = &[
    DECISIONS,
    RULE_MATCHED,
    RULE_DECIDED,
    REQUESTS,
    REQUEST_DURATION,
    DECISION_DURATION,
    UPSTREAM_TTFB,
    DNS_DURATION,
    CONNECT_DURATION,
    TLS_HANDSHAKE,
    UPSTREAM_RESPONSES,
    UPSTREAM_ERRORS,
    BYTES,
    CONNECTIONS,
    TUNNELS,
    TUNNEL_VERDICTS,
    DOCUMENTS,
    SNI_CHECKS,
    CLIENT_TLS_FAILURES,
    LEAF_CERTIFICATES,
    MINT_WAITS,
    CA_NOT_AFTER,
    INFLIGHT_REQUESTS,
    HOLD,
    HELD_REQUESTS,
    HELD_DISCONNECTS,
    STOPS,
    HOSTS_TRACKED,
    HOSTS_BACKING_OFF,
    BAN_SUSPICIONS,
    LEASES,
    CRAWL_DELAY_CAPPED,
    ADDRESSES_REFUSED,
    UPSTREAM_UNVERIFIED,
    ROBOTS_FETCHES,
    ROBOTS_CACHE_ENTRIES,
    LEDGER_URLS,
    LEDGER_EVENTS,
    LEDGER_QUEUE,
    LEDGER_WAITS,
    LEDGER_DROPPED,
    LEDGER_FAILURES,
    LEDGER_BROKEN,
    POLICY_INFO,
    POLICY_LAST_RELOAD_SUCCESS,
    POLICY_LAST_RELOAD_TIMESTAMP,
    POLICY_RELOADS,
    POLICY_RULES,
    POLICY_RULES_DISABLED,
    HEAD_REJECTIONS,
    FOREIGN_BYTES,
    REPEAT_REJECTIONS,
    LEDGER_FEED_EVENTS,
    LEDGER_FEED_FAILURES,
    LEDGER_FEED_BEHIND,
    DECISION_LOG_DROPPED,
    TRACE_SPANS_EXPORTED,
    TRACE_SPANS_DROPPED,
    PANICS,
    BUILD_INFO,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let names: BTreeSet<_> = ALL.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), ALL.len());
        for family in ALL {
            assert!(
                family.name.starts_with("crawlgate_") && !family.help.is_empty(),
                "{}",
                family.name
            );
            assert_eq!(
                family.name.ends_with("_total"),
                family.kind == MetricKind::Counter,
                "{}",
                family.name
            );
            assert_eq!(
                [
                    "_duration_seconds",
                    "_ttfb_seconds",
                    "_hold_seconds",
                    "_handshake_seconds"
                ]
                .iter()
                .any(|e| family.name.ends_with(e)),
                matches!(family.kind, MetricKind::Histogram(_)),
                "{}",
                family.name
            );
        }
    }
}
