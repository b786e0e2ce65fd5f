//! The closed sets of label values: what a request is counted under, and which combinations exist from the start.
//!
//! No text of a client or an origin becomes a label. What is outside a set is `other`.

mod decision;
mod request;

use crate::model::reason::Reason;

pub use decision::CLIENT_LEFT;
pub(super) use decision::{
    DECISION_SLOTS, decision_from_slot, decision_slot, possible_decisions, reason_label,
};
pub(super) use request::{
    REQUEST_SLOTS, code_slot, expected_requests, method_slot, request_labels, request_slot,
};

/// Whether anything is counted: the setting `telemetry.metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsMode {
    /// Every request.
    Everything,
    /// Nothing of requests, connections and hosts.
    Nothing,
}

/// What was told of a URL; the label `kind`.
pub const LEDGER_EVENTS: [&str; 3] = ["removal", "permanent_error", "moved"];

/// What came of a body that was looked at; the label `outcome` of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentOutcome {
    /// What it says was read.
    Read,
    /// It was changed.
    Changed,
    /// Nothing could be read of it.
    Unreadable,
    /// Its content was to be judged, and it is larger than may be held back.
    TooLarge,
}

impl DocumentOutcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Read, Self::Changed, Self::Unreadable, Self::TooLarge];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Changed => "changed",
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too_large",
        }
    }
}

/// What was decided of a request; the label `verdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerdictLabel {
    /// It was let through.
    Allow,
    /// It was refused.
    Reject,
    /// It was let through; a rule in shadow mode would have refused it.
    ShadowReject,
}

impl VerdictLabel {
    /// Every verdict.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Reject, Self::ShadowReject];

    /// The word of the label and of the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Reject => "reject",
            Self::ShadowReject => "shadow_reject",
        }
    }
}

/// Who made the answer; the label `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseSource {
    /// The origin's answer was passed on.
    Origin,
    /// The proxy made it, or nobody did.
    Proxy,
}

impl ResponseSource {
    /// Both sources.
    pub const ALL: [Self; 2] = [Self::Origin, Self::Proxy];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Proxy => "proxy",
        }
    }
}

/// Why spans are lost; the label `why` of `trace_spans_dropped_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanLossReason {
    /// More were made than could be sent.
    QueueFull,
    /// The collector cannot be reached, or answers with an error.
    Failed,
    /// The collector took others of the same export, but not these.
    Rejected,
    /// The proxy had to end before they were sent.
    Shutdown,
}

impl SpanLossReason {
    /// Every cause, in the order of the declaration.
    pub const ALL: [Self; 4] = [
        Self::QueueFull,
        Self::Failed,
        Self::Rejected,
        Self::Shutdown,
    ];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Where the ledger's events go; the label `feed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedTarget {
    /// `ledger.events.file`.
    File,
    /// `ledger.events.webhook`.
    Webhook,
}

impl FeedTarget {
    /// Every one, in the order of the declaration.
    pub const ALL: [Self; 2] = [Self::File, Self::Webhook];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Webhook => "webhook",
        }
    }
}

/// How an event left; the label `result` of `ledger_feed_events_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedResult {
    /// It was taken.
    Delivered,
    /// It was not, and was put aside.
    DeadLetter,
}

impl FeedResult {
    /// Every one, in the order of the declaration.
    pub const ALL: [Self; 2] = [Self::Delivered, Self::DeadLetter];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::DeadLetter => "dead_letter",
        }
    }
}

/// Bytes that show another protocol on the proxy's port, or in a tunnel to a port without TLS; the label `reason` of `foreign_bytes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForeignBytesKind {
    /// A TLS ClientHello: a client that speaks TLS to its proxy.
    ClientHello,
    /// The HTTP/2 connection preface.
    Http2Preface,
    /// Inside a tunnel: what no request begins with.
    Unknown,
}

impl ForeignBytesKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::ClientHello, Self::Http2Preface, Self::Unknown];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientHello => "client_hello",
            Self::Http2Preface => "http2_preface",
            Self::Unknown => "unknown",
        }
    }
}

/// What was decided of a CONNECT; the label `verdict` of `tunnels_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelVerdictLabel {
    /// It was let through, perhaps as an undecided one (`tunnel_undecided: allow`).
    Allow,
    /// It was refused.
    Reject,
    /// It was refused because the policy judges what a tunnel hides.
    Undecided,
    /// It was let through to be looked into: what is inside is judged.
    Intercept,
}

impl TunnelVerdictLabel {
    /// Every verdict.
    pub const ALL: [Self; 4] = [Self::Allow, Self::Reject, Self::Undecided, Self::Intercept];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Reject => "reject",
            Self::Undecided => "undecided",
            Self::Intercept => "intercept",
        }
    }
}

/// What the first bytes inside a tunnel to a TLS port say; the label `category` of `sni_checks_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SniCheck {
    /// A ClientHello for the host of the CONNECT.
    Match,
    /// One for another host.
    Mismatch,
    /// One without a server name.
    None,
    /// One for the host of the CONNECT that may hide another (Encrypted Client Hello, or grease that looks like it).
    Ech,
    /// Something else than TLS.
    NotTls,
    /// TLS, but no ClientHello that can be read.
    Malformed,
    /// No whole ClientHello in time.
    Timeout,
}

impl SniCheck {
    /// Every category.
    pub const ALL: [Self; 7] = [
        Self::Match,
        Self::Mismatch,
        Self::None,
        Self::Ech,
        Self::NotTls,
        Self::Malformed,
        Self::Timeout,
    ];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Mismatch => "mismatch",
            Self::None => "none",
            Self::Ech => "ech",
            Self::NotTls => "not_tls",
            Self::Malformed => "malformed",
            Self::Timeout => "timeout",
        }
    }
}

/// Whom TLS is spoken with; the label `side` of `tls_handshake_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsSide {
    /// A client, inside its tunnel.
    Client,
    /// An origin.
    Origin,
}

impl TlsSide {
    /// Both sides.
    pub const ALL: [Self; 2] = [Self::Client, Self::Origin];

    /// The word of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Origin => "origin",
        }
    }
}

/// Whether a rule takes part; the label `mode` of its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleMode {
    /// It does.
    Enforce,
    /// It is only watched.
    Shadow,
    /// It has no counters.
    Disabled,
}

impl RuleMode {
    /// The word of the label and of the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Disabled => "disabled",
        }
    }
}

/// What a rule can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// It refuses.
    Filter,
    /// It refuses or lets through, by the options that it sets.
    Group,
}

impl RuleKind {
    /// The verdicts for which it has a counter from the start.
    pub(super) fn verdicts(self) -> &'static [VerdictLabel] {
        match self {
            Self::Filter => &[VerdictLabel::Reject],
            Self::Group => &[VerdictLabel::Allow, VerdictLabel::Reject],
        }
    }
}
/// How fetches of robots.txt end: the names of `robots::ending::TABLE`, in its order.
pub const ROBOTS_RESULTS: [&str; 17] = [
    "file",
    "page",
    "unchanged",
    "absent",
    "limited",
    "server_error",
    "odd_status",
    "redirects",
    "elsewhere",
    "prohibited",
    "refused",
    "tls",
    "dns",
    "timeout",
    "broken",
    "coding",
    "held",
];

/// The reasons for which the head reader refuses before there is a request.
pub(super) const HEAD_REASONS: [Reason; 4] = [
    Reason::BadRequest,
    Reason::RequestTooLarge,
    Reason::HeadersTooLarge,
    Reason::RequestTimeout,
];
/// What is outside a closed set.
pub(super) const OTHER: &str = "other";

/// The first digit of an origin's status; the label `code_class`.
pub(super) const CODE_CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", OTHER];

/// The place of a status in [`CODE_CLASSES`].
pub(super) fn class_slot(status: u16) -> usize {
    match status {
        100..600 => usize::from(status / 100) - 1,
        _ => CODE_CLASSES.len() - 1,
    }
}

/// The error types of RFC 9209 section 2.3 that an exchange with an origin can end in.
pub(super) const UPSTREAM_ERRORS: [&str; 27] = [
    "dns_timeout",
    "dns_error",
    "destination_not_found",
    "destination_unavailable",
    "destination_ip_unroutable",
    "connection_refused",
    "connection_terminated",
    "connection_timeout",
    "connection_read_timeout",
    "connection_write_timeout",
    "connection_limit_reached",
    "tls_protocol_error",
    "tls_certificate_error",
    "tls_alert_received",
    "http_response_incomplete",
    "http_response_header_section_size",
    "http_response_header_size",
    "http_response_body_size",
    "http_response_trailer_section_size",
    "http_response_transfer_coding",
    "http_response_content_coding",
    "http_response_timeout",
    "http_upgrade_failed",
    "http_request_error",
    "http_protocol_error",
    "proxy_internal_error",
    OTHER,
];

/// The place of an error type in [`UPSTREAM_ERRORS`].
pub(super) fn error_slot(error: &str) -> usize {
    UPSTREAM_ERRORS
        .iter()
        .position(|name| *name == error)
        .unwrap_or(UPSTREAM_ERRORS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_a_set_is_other() {
        for (status, class) in [
            (100, "1xx"),
            (204, "2xx"),
            (599, "5xx"),
            (600, OTHER),
            (0, OTHER),
            (760, OTHER),
        ] {
            assert_eq!(CODE_CLASSES[class_slot(status)], class, "{status}");
        }
        assert_eq!(UPSTREAM_ERRORS[error_slot("dns_error")], "dns_error");
        assert_eq!(UPSTREAM_ERRORS[error_slot("evil\nname")], OTHER);
    }
}
