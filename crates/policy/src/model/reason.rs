//! The closed table of reasons for refusing a request.
//!
//! Each reason is one row: its status, header text, metric label, retry hint, and the outcome that the option
//! `removal` maps to an action for a page of the crawler's index. A refusal may set a more precise status, such as 414 or 504.

use super::crawl_status::CrawlStatus;
use super::failure_kind::FailureKind;
use super::intent::Intent;
use super::removal::RemovalOutcome;
use super::stage::Stage;
use super::words::Word;

/// The advice about a repetition: the value of `Crawl-Retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryHint {
    /// A repeated request will always be refused.
    Never,
    /// A later request may succeed, perhaps after `Retry-After`.
    After,
    /// A request may succeed after a change of the policy.
    PolicyChange,
}

impl RetryHint {
    /// The value of `Crawl-Retry`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::After => "after",
            Self::PolicyChange => "policy-change",
        }
    }
}

/// The source of a reason's HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSource {
    /// The crawler's profile maps this intent to a status.
    Profile(Intent),
    /// The reason has this status, regardless of the profile.
    Fixed(u16),
    /// A gateway error: 504 for a timeout, else 502.
    Gateway,
}

/// One row of the table of reasons.
#[derive(Clone, Copy, Debug)]
pub struct ReasonRow {
    /// The value of `Crawl-Reason` and of the metric label.
    pub name: &'static str,
    /// The value of `Crawl-Status`, in Norconex's terms.
    pub crawl_status: CrawlStatus,
    /// The source of the HTTP status.
    pub status: StatusSource,
    /// The error type in `Proxy-Status` (RFC 9209 section 2.3); for gateway errors, the default.
    pub error: &'static str,
    /// The advice about a repetition.
    pub retry: RetryHint,
    /// An OmniFind code, if there is one.
    pub code: Option<u16>,
    /// The kind of error that the fetch counts as, if nothing more is known of it; `None` if the fetch is not an error.
    pub failure: Option<FailureKind>,
    /// The outcome for which the option `removal` decides if the page leaves the crawler's index; `None` if the page stays.
    /// A soft error that is answered with another status than 404 has the outcome of that status.
    pub removal: Option<RemovalOutcome>,
    /// The stages for which `crawlgate_decisions_total` is exported as 0 before the reason occurs; for others, it is exported
    /// once the reason has occurred there.
    pub stages: &'static [Stage],
    /// Set if a head is rejected for it before it is a request: `crawlgate_head_rejections_total` is exported as 0 for it.
    pub rejects_head: bool,
    /// The `title` of the problem document (RFC 9457).
    pub title: &'static str,
}

/// Defines the reasons from their rows: variants, list and table cannot differ.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident { $($row:tt)* })*) => {
        /// The reason for refusing a request: the value of `Crawl-Reason` and of the label `reason`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            /// All reasons, in the order of the table.
            pub const ALL: [Self; [$(stringify!($reason)),*].len()] = [$(Self::$reason),*];

            /// Returns the row of the table.
            pub fn row(self) -> &'static ReasonRow {
                match self {
                    $(Self::$reason => &ReasonRow { $($row)* },)*
                }
            }
        }
    };
}

reasons! {
    /// A rule of the policy refused it.
    Rule {
        name: "rule",
        title: "URL rejected by crawl policy",
        removal: Some(RemovalOutcome::Rule),
        stages: &[Stage::Request, Stage::Destination, Stage::Response, Stage::Document],
        ..FILTER
    }
    /// No rule matched, and `options.disposition` refused it.
    Default {
        name: "default",
        title: "URL rejected by the policy's default",
        removal: Some(RemovalOutcome::Rule),
        stages: &[Stage::Request, Stage::Destination, Stage::Response, Stage::Document],
        ..FILTER
    }
    /// The decision on a tunnel depends on parts of URLs that the tunnel hides.
    Undecided {
        name: "undecided",
        title: "The policy cannot decide a tunnel to this host",
        stages: &[Stage::Connect],
        ..FILTER
    }
    /// The URL is deeper than the option `max_depth` allows.
    TooDeep {
        name: "too_deep",
        crawl_status: CrawlStatus::TooDeep,
        title: "URL deeper than the policy allows",
        removal: Some(RemovalOutcome::Rule),
        stages: &[Stage::Request],
        ..FILTER
    }
    /// The policy allows the URL, but refuses it as lax servers read it.
    AmbiguousUrl {
        name: "ambiguous_url",
        retry: RetryHint::Never,
        title: "URL that servers may interpret in two ways",
        stages: &[Stage::Target, Stage::Request, Stage::Destination, Stage::Response, Stage::Document],
        ..REQUEST
    }
    /// The URL matches a pattern of the option `traps`.
    Trap {
        name: "trap",
        crawl_status: CrawlStatus::Trap,
        title: "URL of a crawler trap",
        removal: Some(RemovalOutcome::Rule),
        stages: &[Stage::Request],
        ..FILTER
    }
    /// The option `budget` is used up for today.
    Budget {
        name: "budget",
        crawl_status: CrawlStatus::Budget,
        retry: RetryHint::After,
        title: "Daily budget used up",
        stages: &[Stage::Request],
        ..FILTER
    }
    /// The option `recrawl` does not allow another request yet.
    Premature {
        name: "premature",
        crawl_status: CrawlStatus::Premature,
        status: StatusSource::Profile(Intent::Keep),
        retry: RetryHint::After,
        title: "Requested again too soon",
        stages: &[Stage::Ledger],
        ..FILTER
    }
    /// The response is larger than the option `max_body` allows.
    BodyTooLarge {
        name: "body_too_large",
        crawl_status: CrawlStatus::Import,
        error: "http_response_body_size",
        retry: RetryHint::Never,
        title: "Response larger than the policy allows",
        removal: Some(RemovalOutcome::TooLarge),
        stages: &[Stage::Response],
        ..FILTER
    }
    /// The page reports an error although its status does not: a filter with `as`.
    SoftError {
        name: "soft_error",
        crawl_status: CrawlStatus::NotFound,
        status: StatusSource::Fixed(404),
        error: "proxy_internal_response",
        retry: RetryHint::Never,
        title: "Page that reports an error",
        removal: Some(RemovalOutcome::NotFound),
        stages: &[Stage::Document],
        ..FILTER
    }
    /// The response names another canonical URL, which the option `noncanonical` rejects.
    Noncanonical {
        name: "noncanonical",
        crawl_status: CrawlStatus::Noncanonical,
        title: "URL with another canonical form",
        removal: Some(RemovalOutcome::Noncanonical),
        stages: &[Stage::Response, Stage::Document],
        ..FILTER
    }
    /// The response asks not to be indexed, which the option `noindex` rejects.
    Noindex {
        name: "noindex",
        crawl_status: CrawlStatus::Noindex,
        title: "Document that asks not to be indexed",
        removal: Some(RemovalOutcome::Noindex),
        stages: &[Stage::Response, Stage::Document],
        ..FILTER
    }
    /// The document has not changed since the last fetch, which the option `unmodified` rejects.
    Unmodified {
        name: "unmodified",
        crawl_status: CrawlStatus::Unmodified,
        status: StatusSource::Profile(Intent::Keep),
        retry: RetryHint::Never,
        title: "Document that has not changed",
        stages: &[Stage::Response, Stage::Document],
        ..FILTER
    }
    /// Another URL of the host has the same document, which the option `duplicate` rejects.
    Duplicate {
        name: "duplicate",
        crawl_status: CrawlStatus::Duplicate,
        title: "Document already served by another URL",
        removal: Some(RemovalOutcome::Duplicate),
        stages: &[Stage::Response, Stage::Document],
        ..FILTER
    }
    /// The host's robots.txt forbids the URL.
    RobotsTxt {
        name: "robots_txt",
        crawl_status: CrawlStatus::RobotsTxt,
        code: Some(740),
        title: "URL forbidden by the host's robots.txt",
        removal: Some(RemovalOutcome::RobotsTxt),
        stages: &[Stage::Robots],
        ..FILTER
    }
    /// The host's robots.txt is unavailable.
    RobotsUnreachable {
        name: "robots_unreachable",
        crawl_status: CrawlStatus::RobotsTxt,
        status: StatusSource::Fixed(503),
        retry: RetryHint::After,
        code: Some(740),
        title: "The host's robots.txt is unavailable",
        stages: &[Stage::Robots],
        ..FILTER
    }
    /// The site denies a use that the option `robots.usage` declares.
    Usage {
        name: "usage",
        crawl_status: CrawlStatus::Usage,
        title: "Use denied by the site",
        removal: Some(RemovalOutcome::RobotsTxt),
        stages: &[Stage::Robots, Stage::Response],
        ..FILTER
    }
    /// The host's rate limit would hold the request for longer than it may wait.
    RateLimited {
        name: "rate_limited",
        title: "Host's rate limit reached",
        ..POLITENESS
    }
    /// Too many requests are waiting.
    QueueFull {
        name: "queue_full",
        title: "Too many requests are waiting",
        ..POLITENESS
    }
    /// The host is in backoff: it asked for it, or failed repeatedly.
    HostBackoff {
        name: "host_backoff",
        error: "destination_unavailable",
        title: "Host in backoff: it asked for a pause, or failed repeatedly",
        ..POLITENESS
    }
    /// An operator stopped the host, the crawler or a rule that matches.
    Stopped {
        name: "stopped",
        error: "http_request_denied",
        title: "Stopped by an operator",
        ..POLITENESS
    }
    /// The node of the fleet that owns the host cannot be reached, or is not known.
    OwnerUnavailable {
        name: "owner_unavailable",
        crawl_status: CrawlStatus::Unavailable,
        status: StatusSource::Fixed(503),
        error: "destination_unavailable",
        title: "The node that owns the host is unavailable",
        ..POLITENESS
    }
    /// All addresses of the host are in prohibited ranges.
    IpProhibited {
        name: "ip_prohibited",
        crawl_status: CrawlStatus::Address,
        error: "destination_ip_prohibited",
        title: "Host with a prohibited address",
        stages: &[Stage::Destination],
        ..REQUEST
    }
    /// The port is not in `egress.ports`, or not allowed for tunnels.
    PortDenied {
        name: "port_denied",
        code: Some(770),
        title: "Port not allowed",
        stages: &[Stage::Destination, Stage::Connect],
        ..REQUEST
    }
    /// The method is TRACE, or CONNECT inside a tunnel.
    MethodDenied {
        name: "method_denied",
        status: StatusSource::Fixed(405),
        title: "Method not allowed",
        stages: &[Stage::Target],
        ..REQUEST
    }
    /// The request asks for another protocol with `Upgrade`, which is never forwarded.
    UpgradeDenied {
        name: "upgrade_denied",
        title: "Protocol upgrade not allowed",
        stages: &[Stage::Target],
        ..REQUEST
    }
    /// The scheme is neither `http` nor `https`.
    SchemeDenied {
        name: "scheme_denied",
        code: Some(770),
        title: "Scheme not allowed",
        stages: &[Stage::Target],
        ..REQUEST
    }
    /// A request inside a tunnel names another host than the CONNECT did.
    HostMismatch {
        name: "host_mismatch",
        status: StatusSource::Fixed(421),
        retry: RetryHint::Never,
        title: "Host differs from the tunnel's",
        stages: &[Stage::Target, Stage::Connect],
        ..REQUEST
    }
    /// The request target or body exceeds its limit.
    RequestTooLarge {
        name: "request_too_large",
        status: StatusSource::Fixed(413),
        title: "Request too large",
        stages: &[Stage::Target, Stage::Upstream],
        rejects_head: true,
        ..CLIENT
    }
    /// The request head or its body did not arrive in time, or the first bytes of a tunnel.
    RequestTimeout {
        name: "request_timeout",
        status: StatusSource::Fixed(408),
        title: "Request not received in time",
        stages: &[Stage::Target, Stage::Connect],
        rejects_head: true,
        ..CLIENT
    }
    /// The request is ambiguous or malformed.
    BadRequest {
        name: "bad_request",
        title: "Request not understood",
        stages: &[Stage::Target, Stage::Connect],
        rejects_head: true,
        ..CLIENT
    }
    /// The request head exceeds its limit.
    HeadersTooLarge {
        name: "headers_too_large",
        status: StatusSource::Fixed(431),
        title: "Request head too large",
        rejects_head: true,
        ..CLIENT
    }
    /// The request has already passed through this proxy.
    Loop {
        name: "loop",
        status: StatusSource::Fixed(502),
        error: "proxy_loop_detected",
        title: "Request already passed through this proxy",
        ..CLIENT
    }
    /// The host name does not resolve.
    UpstreamDns {
        name: "upstream_dns",
        error: "dns_error",
        code: Some(680),
        failure: Some(FailureKind::Temporary),
        title: "Host name not resolved",
        stages: &[Stage::Destination],
        ..GATEWAY
    }
    /// No address of the host accepts a connection.
    UpstreamConnect {
        name: "upstream_connect",
        error: "connection_refused",
        code: Some(612),
        failure: Some(FailureKind::Temporary),
        title: "No connection to the origin",
        // At the destination stage, if the host has refused connections recently.
        stages: &[Stage::Destination, Stage::Upstream],
        ..GATEWAY
    }
    /// The origin's certificate is not trusted, or the TLS handshake fails.
    UpstreamTls {
        name: "upstream_tls",
        error: "tls_protocol_error",
        code: Some(614),
        title: "No trusted TLS connection to the origin",
        // The host's robots.txt is requested first.
        stages: &[Stage::Robots, Stage::Upstream],
        ..GATEWAY
    }
    /// The origin did not respond in time.
    UpstreamTimeout {
        name: "upstream_timeout",
        status: StatusSource::Fixed(504),
        error: "http_response_timeout",
        code: Some(613),
        failure: Some(FailureKind::Temporary),
        title: "Origin did not answer in time",
        ..GATEWAY
    }
    /// The origin's response is not valid HTTP.
    UpstreamProtocol {
        name: "upstream_protocol",
        title: "Origin's answer is not valid HTTP",
        ..GATEWAY
    }
    /// A panic, which ends this request only.
    InternalError {
        name: "internal_error",
        crawl_status: CrawlStatus::Error,
        status: StatusSource::Fixed(500),
        error: "proxy_internal_error",
        retry: RetryHint::Never,
        code: None,
        failure: None,
        title: "Internal error of the proxy",
        removal: None,
        stages: &[Stage::Request, Stage::Upstream, Stage::Response],
        rejects_head: false,
    }
    /// The client must authenticate, or its credentials are wrong.
    Unauthorized {
        name: "unauthorized",
        crawl_status: CrawlStatus::Unauthorized,
        status: StatusSource::Fixed(407),
        title: "Proxy credentials needed",
        stages: &[Stage::Identify],
        ..CLIENT
    }
    /// The proxy has reached a connection limit.
    Overloaded {
        name: "overloaded",
        title: "Proxy overloaded",
        stages: &[Stage::Identify, Stage::Connect],
        ..UNAVAILABLE
    }
    /// The proxy is shutting down, and the request would have had to wait.
    ShuttingDown {
        name: "shutting_down",
        title: "Proxy shutting down",
        stages: &[Stage::Pace],
        ..UNAVAILABLE
    }
}

impl Reason {
    /// The position in [`Self::ALL`], for tables indexed by reason.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The value of `Crawl-Reason` and of the metric label.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Returns the intent of the refusal. Errors of the request or the gateway have none.
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
}

impl Word for Reason {
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        self.as_str()
    }
}

/// The values that the rows of a group share. Each row sets its own name and title.
const FILTER: ReasonRow = ReasonRow {
    name: "",
    crawl_status: CrawlStatus::Filter,
    status: StatusSource::Profile(Intent::Deny),
    error: "http_request_denied",
    retry: RetryHint::PolicyChange,
    code: None,
    failure: None,
    title: "",
    removal: None,
    stages: &[],
    rejects_head: false,
};
const POLITENESS: ReasonRow = ReasonRow {
    crawl_status: CrawlStatus::Politeness,
    status: StatusSource::Profile(Intent::Later),
    error: "http_request_error",
    retry: RetryHint::After,
    stages: &[Stage::Pace],
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
    stages: &[Stage::Target],
    ..FILTER
};
const GATEWAY: ReasonRow = ReasonRow {
    crawl_status: CrawlStatus::Error,
    status: StatusSource::Gateway,
    error: "http_protocol_error",
    retry: RetryHint::After,
    failure: Some(FailureKind::Permanent),
    removal: Some(RemovalOutcome::Error),
    stages: &[Stage::Upstream],
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
