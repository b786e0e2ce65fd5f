//! The closed table of reasons (decisions.md section 2): why a request was refused.
//!
//! One row a reason; no other file knows a reason's status, header text, metric label or retry hint. The rows
//! of parts that are not built yet are not here.

use super::crawl_status::CrawlStatus;
use super::intent::Intent;

/// Why a request was refused; the value of `Crawl-Reason` and of the `reason` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A rule of the policy decided.
    Rule,
    /// No rule decided: the policy's `options.disposition` did.
    Default,
    /// The tunnel's verdict would depend on URLs that a tunnel hides.
    Undecided,
    /// Deeper than the option `max_depth`.
    TooDeep,
    /// The raw and the decoded path get different verdicts.
    AmbiguousUrl,
    /// A pattern of URLs without end: the option `traps`.
    Trap,
    /// The day's allowance is used up: the option `budget`.
    Budget,
    /// Asked for again too soon: the option `recrawl`.
    Premature,
    /// The response is larger than the option `max_body`.
    BodyTooLarge,
    /// A page that says it is an error although its status does not: a filter with `as`.
    SoftError,
    /// The response names another canonical URL, and the option `noncanonical` rejects that.
    Noncanonical,
    /// The response asks not to be indexed, and the option `noindex` rejects that.
    Noindex,
    /// The document is the one that the crawler has, and the option `unmodified` rejects that.
    Unmodified,
    /// Another URL of the host has the same document, and the option `duplicate` rejects that.
    Duplicate,
    /// The host's robots.txt forbids it.
    RobotsTxt,
    /// The host's robots.txt cannot be had.
    RobotsUnreachable,
    /// The site denies a use that the option `robots.usage` declares.
    Usage,
    /// The host's pace leaves no room within the time that the request may wait.
    RateLimited,
    /// Too many requests wait.
    QueueFull,
    /// The origin rests: it has asked for it, or kept failing.
    HostBackoff,
    /// An operator has stopped the host, the crawler or a rule that applies.
    Stopped,
    /// Every address of the host is in a range that must not be dialled.
    IpProhibited,
    /// The port is not one of `egress.ports`, or none that a tunnel may go to.
    PortDenied,
    /// TRACE, and CONNECT inside a tunnel.
    MethodDenied,
    /// An `Upgrade`, and the policy does not allow it.
    UpgradeDenied,
    /// Neither `http` nor `https`.
    SchemeDenied,
    /// What is asked for inside a tunnel is not what the tunnel was opened to.
    HostMismatch,
    /// The request target or body is over its limit.
    RequestTooLarge,
    /// The request head did not arrive in time.
    RequestTimeout,
    /// The request cannot be understood in exactly one way.
    BadRequest,
    /// The request head is over its limit.
    HeadersTooLarge,
    /// The request came through this proxy before.
    Loop,
    /// The host's name does not resolve.
    UpstreamDns,
    /// No address of the host accepts a connection.
    UpstreamConnect,
    /// The origin's certificate is not to be trusted, or TLS with it fails.
    UpstreamTls,
    /// The origin did not answer in time.
    UpstreamTimeout,
    /// The origin's answer is not HTTP.
    UpstreamProtocol,
    /// A panic; it ends this request only.
    InternalError,
    /// The client has no name, and anonymous ones may not ask; or its credentials are wrong.
    Unauthorized,
    /// A connection limit of the proxy.
    Overloaded,
    /// The proxy goes down, and the request would have had to wait.
    ShuttingDown,
}

/// What a crawler may hope for; the value of `Crawl-Retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryHint {
    /// The same request will always be refused.
    Never,
    /// Later, perhaps after `Retry-After`.
    After,
    /// Only once the policy has changed.
    PolicyChange,
}

impl RetryHint {
    /// The word of the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::After => "after",
            Self::PolicyChange => "policy-change",
        }
    }
}

/// Where a reason's wire status comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSource {
    /// The crawler's profile turns this intent into a status.
    Profile(Intent),
    /// The reason has a status of its own, whatever the profile.
    Fixed(u16),
    /// Gateway errors: 504 for a time-out, else 502.
    Gateway,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct ReasonRow {
    /// The value of `Crawl-Reason` and of the metric label.
    pub name: &'static str,
    /// The Norconex-style value of `Crawl-Status`.
    pub crawl_status: CrawlStatus,
    /// Where the status comes from.
    pub status: StatusSource,
    /// The error type in `Proxy-Status` (RFC 9209 section 2.3); for gateway errors the usual one.
    pub error: &'static str,
    /// The retry hint.
    pub retry: RetryHint,
    /// An OmniFind-style code, where one exists.
    pub code: Option<u16>,
    /// The `title` of the problem document (RFC 9457).
    pub title: &'static str,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 41] = [
        Self::Rule,
        Self::Default,
        Self::Undecided,
        Self::TooDeep,
        Self::AmbiguousUrl,
        Self::Trap,
        Self::Budget,
        Self::Premature,
        Self::BodyTooLarge,
        Self::SoftError,
        Self::Noncanonical,
        Self::Noindex,
        Self::Unmodified,
        Self::Duplicate,
        Self::RobotsTxt,
        Self::RobotsUnreachable,
        Self::Usage,
        Self::RateLimited,
        Self::QueueFull,
        Self::HostBackoff,
        Self::Stopped,
        Self::IpProhibited,
        Self::PortDenied,
        Self::MethodDenied,
        Self::UpgradeDenied,
        Self::SchemeDenied,
        Self::HostMismatch,
        Self::RequestTooLarge,
        Self::RequestTimeout,
        Self::BadRequest,
        Self::HeadersTooLarge,
        Self::Loop,
        Self::UpstreamDns,
        Self::UpstreamConnect,
        Self::UpstreamTls,
        Self::UpstreamTimeout,
        Self::UpstreamProtocol,
        Self::InternalError,
        Self::Unauthorized,
        Self::Overloaded,
        Self::ShuttingDown,
    ];

    /// The reason's place in [`Self::ALL`], for tables indexed by reason.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The value of `Crawl-Reason` and of the metric label.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// What the refusal means to a crawler; errors of the request or the gateway have no intent.
    pub fn intent(self) -> Option<Intent> {
        match (self.row().status, self.row().error) {
            (StatusSource::Profile(intent), _) => Some(intent),
            (StatusSource::Fixed(503), _) => Some(Intent::Later),
            (StatusSource::Fixed(_), "http_request_denied" | "destination_ip_prohibited") => {
                Some(Intent::Deny)
            }
            (StatusSource::Fixed(_) | StatusSource::Gateway, _) => None,
        }
    }

    /// Everything that is known of the reason.
    #[allow(clippy::too_many_lines, reason = "one table, read as one")]
    pub fn row(self) -> &'static ReasonRow {
        match self {
            Self::Rule => &ReasonRow {
                name: "rule",
                title: "URL rejected by crawl policy",
                ..FILTER
            },
            Self::Default => &ReasonRow {
                name: "default",
                title: "URL rejected by the policy's default",
                ..FILTER
            },
            Self::Undecided => &ReasonRow {
                name: "undecided",
                title: "The policy cannot judge a tunnel to this host",
                ..FILTER
            },
            Self::TooDeep => &ReasonRow {
                name: "too_deep",
                crawl_status: CrawlStatus::TooDeep,
                title: "URL deeper than the policy admits",
                ..FILTER
            },
            Self::AmbiguousUrl => &ReasonRow {
                name: "ambiguous_url",
                retry: RetryHint::Never,
                title: "URL that servers could read in two ways",
                ..REQUEST
            },
            Self::Trap => &ReasonRow {
                name: "trap",
                crawl_status: CrawlStatus::Trap,
                title: "URL of a pattern without end",
                ..FILTER
            },
            Self::Budget => &ReasonRow {
                name: "budget",
                crawl_status: CrawlStatus::Budget,
                retry: RetryHint::After,
                title: "The day's allowance is used up",
                ..FILTER
            },
            Self::Premature => &ReasonRow {
                name: "premature",
                crawl_status: CrawlStatus::Premature,
                status: StatusSource::Profile(Intent::Keep),
                retry: RetryHint::After,
                title: "Asked for again too soon",
                ..FILTER
            },
            Self::BodyTooLarge => &ReasonRow {
                name: "body_too_large",
                crawl_status: CrawlStatus::Import,
                error: "http_response_body_size",
                retry: RetryHint::Never,
                title: "Response larger than the policy admits",
                ..FILTER
            },
            Self::SoftError => &ReasonRow {
                name: "soft_error",
                crawl_status: CrawlStatus::NotFound,
                status: StatusSource::Fixed(404),
                error: "proxy_internal_response",
                retry: RetryHint::Never,
                title: "Page that reports an error",
                ..FILTER
            },
            Self::Noncanonical => &ReasonRow {
                name: "noncanonical",
                crawl_status: CrawlStatus::Noncanonical,
                title: "URL with another canonical form",
                ..FILTER
            },
            Self::Noindex => &ReasonRow {
                name: "noindex",
                crawl_status: CrawlStatus::Noindex,
                title: "Document that asks not to be indexed",
                ..FILTER
            },
            Self::Unmodified => &ReasonRow {
                name: "unmodified",
                crawl_status: CrawlStatus::Unmodified,
                status: StatusSource::Profile(Intent::Keep),
                retry: RetryHint::Never,
                title: "Document that has not changed",
                ..FILTER
            },
            Self::Duplicate => &ReasonRow {
                name: "duplicate",
                crawl_status: CrawlStatus::Duplicate,
                title: "Document that another URL has, too",
                ..FILTER
            },
            Self::RobotsTxt => &ReasonRow {
                name: "robots_txt",
                crawl_status: CrawlStatus::RobotsTxt,
                code: Some(740),
                title: "URL forbidden by the host's robots.txt",
                ..FILTER
            },
            Self::RobotsUnreachable => &ReasonRow {
                name: "robots_unreachable",
                crawl_status: CrawlStatus::RobotsTxt,
                status: StatusSource::Fixed(503),
                retry: RetryHint::After,
                code: Some(740),
                title: "The host's robots.txt cannot be had",
                ..FILTER
            },
            Self::Usage => &ReasonRow {
                name: "usage",
                crawl_status: CrawlStatus::Usage,
                title: "Use that the site denies",
                ..FILTER
            },
            Self::RateLimited => &ReasonRow {
                name: "rate_limited",
                title: "Host asked as often as is polite",
                ..POLITENESS
            },
            Self::QueueFull => &ReasonRow {
                name: "queue_full",
                title: "Too many requests wait for their turn",
                ..POLITENESS
            },
            Self::HostBackoff => &ReasonRow {
                name: "host_backoff",
                error: "destination_unavailable",
                title: "Host at rest: it asked for it, or kept failing",
                ..POLITENESS
            },
            Self::Stopped => &ReasonRow {
                name: "stopped",
                error: "http_request_denied",
                title: "Stopped by an operator",
                ..POLITENESS
            },
            Self::IpProhibited => &ReasonRow {
                name: "ip_prohibited",
                crawl_status: CrawlStatus::Address,
                error: "destination_ip_prohibited",
                title: "Host with a prohibited address",
                ..REQUEST
            },
            Self::PortDenied => &ReasonRow {
                name: "port_denied",
                code: Some(770),
                title: "Port not allowed",
                ..REQUEST
            },
            Self::MethodDenied => &ReasonRow {
                name: "method_denied",
                status: StatusSource::Fixed(405),
                title: "Method not allowed",
                ..REQUEST
            },
            Self::UpgradeDenied => &ReasonRow {
                name: "upgrade_denied",
                title: "Protocol upgrade not allowed",
                ..REQUEST
            },
            Self::SchemeDenied => &ReasonRow {
                name: "scheme_denied",
                code: Some(770),
                title: "Scheme not allowed",
                ..REQUEST
            },
            Self::HostMismatch => &ReasonRow {
                name: "host_mismatch",
                status: StatusSource::Fixed(421),
                retry: RetryHint::Never,
                title: "Host other than the tunnel's",
                ..REQUEST
            },
            Self::RequestTooLarge => &ReasonRow {
                name: "request_too_large",
                status: StatusSource::Fixed(413),
                title: "Request too large",
                ..CLIENT
            },
            Self::RequestTimeout => &ReasonRow {
                name: "request_timeout",
                status: StatusSource::Fixed(408),
                title: "Request head not received in time",
                ..CLIENT
            },
            Self::BadRequest => &ReasonRow {
                name: "bad_request",
                title: "Request not understood",
                ..CLIENT
            },
            Self::HeadersTooLarge => &ReasonRow {
                name: "headers_too_large",
                status: StatusSource::Fixed(431),
                title: "Request head too large",
                ..CLIENT
            },
            Self::Loop => &ReasonRow {
                name: "loop",
                status: StatusSource::Fixed(502),
                error: "proxy_loop_detected",
                title: "Request came through this proxy before",
                ..CLIENT
            },
            Self::UpstreamDns => &ReasonRow {
                name: "upstream_dns",
                error: "dns_error",
                code: Some(680),
                title: "Host name not resolved",
                ..GATEWAY
            },
            Self::UpstreamConnect => &ReasonRow {
                name: "upstream_connect",
                error: "connection_refused",
                code: Some(612),
                title: "No connection to the origin",
                ..GATEWAY
            },
            Self::UpstreamTls => &ReasonRow {
                name: "upstream_tls",
                error: "tls_protocol_error",
                code: Some(614),
                title: "No trusted TLS connection to the origin",
                ..GATEWAY
            },
            Self::UpstreamTimeout => &ReasonRow {
                name: "upstream_timeout",
                status: StatusSource::Fixed(504),
                error: "http_response_timeout",
                code: Some(613),
                title: "Origin did not answer in time",
                ..GATEWAY
            },
            Self::UpstreamProtocol => &ReasonRow {
                name: "upstream_protocol",
                title: "Origin's answer is not valid HTTP",
                ..GATEWAY
            },
            Self::InternalError => &ReasonRow {
                name: "internal_error",
                crawl_status: CrawlStatus::Error,
                status: StatusSource::Fixed(500),
                error: "proxy_internal_error",
                retry: RetryHint::Never,
                code: None,
                title: "Error inside the proxy",
            },
            Self::Unauthorized => &ReasonRow {
                name: "unauthorized",
                crawl_status: CrawlStatus::Unauthorized,
                status: StatusSource::Fixed(407),
                title: "Proxy credentials needed",
                ..CLIENT
            },
            Self::Overloaded => &ReasonRow {
                name: "overloaded",
                title: "Proxy at its limits",
                ..UNAVAILABLE
            },
            Self::ShuttingDown => &ReasonRow {
                name: "shutting_down",
                title: "Proxy about to stop",
                ..UNAVAILABLE
            },
        }
    }
}

/// What the rows of one group share; the names and titles are replaced in each row.
const FILTER: ReasonRow = ReasonRow {
    name: "",
    crawl_status: CrawlStatus::Filter,
    status: StatusSource::Profile(Intent::Deny),
    error: "http_request_denied",
    retry: RetryHint::PolicyChange,
    code: None,
    title: "",
};
const POLITENESS: ReasonRow = ReasonRow {
    crawl_status: CrawlStatus::Politeness,
    status: StatusSource::Profile(Intent::Later),
    error: "http_request_error",
    retry: RetryHint::After,
    ..FILTER
};
const REQUEST: ReasonRow = ReasonRow {
    crawl_status: CrawlStatus::Request,
    status: StatusSource::Fixed(403),
    ..FILTER
};
const CLIENT: ReasonRow = ReasonRow {
    crawl_status: CrawlStatus::Request,
    status: StatusSource::Fixed(400),
    error: "http_request_error",
    retry: RetryHint::Never,
    ..FILTER
};
const GATEWAY: ReasonRow = ReasonRow {
    crawl_status: CrawlStatus::Error,
    status: StatusSource::Gateway,
    error: "http_protocol_error",
    retry: RetryHint::After,
    ..FILTER
};
const UNAVAILABLE: ReasonRow = ReasonRow {
    crawl_status: CrawlStatus::Unavailable,
    status: StatusSource::Fixed(503),
    error: "connection_limit_reached",
    retry: RetryHint::After,
    ..FILTER
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_a_row_of_its_own_in_its_place() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            let row = reason.row();
            assert_eq!(reason.index(), place);
            assert!(
                row.name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{}",
                row.name
            );
            assert!(!row.title.is_empty() && row.crawl_status.as_str().starts_with("REJECTED_"));
        }
    }
}
