//! The closed sets of label values: what a request is counted under, and which combinations exist from the start.
//!
//! No text of a client or an origin becomes a label. What is outside a set is `other`.

use http::Method;

use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

/// What was decided of a request; the label `verdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It was let through.
    Allow,
    /// It was refused.
    Reject,
    /// It was let through; a rule in shadow mode would have refused it.
    ShadowReject,
}

impl Verdict {
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
pub enum Source {
    /// The origin's answer was passed on.
    Origin,
    /// The proxy made it, or nobody did.
    Proxy,
}

impl Source {
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

/// Bytes that show another protocol on the proxy's port, or in a tunnel to a port without TLS; the label `reason` of `foreign_bytes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForeignBytes {
    /// A TLS ClientHello: a client that speaks TLS to its proxy.
    ClientHello,
    /// The HTTP/2 connection preface.
    Http2Preface,
    /// Inside a tunnel: what no request begins with.
    Unknown,
}

impl ForeignBytes {
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
pub enum TunnelVerdict {
    /// It was let through, perhaps as an undecided one (`tunnel_undecided: allow`).
    Allow,
    /// It was refused.
    Reject,
    /// It was refused because the policy judges what a tunnel hides.
    Undecided,
    /// It was let through to be looked into: what is inside is judged.
    Intercept,
}

impl TunnelVerdict {
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
    pub const ALL: [Self; 7] =
        [Self::Match, Self::Mismatch, Self::None, Self::Ech, Self::NotTls, Self::Malformed, Self::Timeout];

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

/// What stands for the reason of a client that left before anything was decided.
pub const CLIENT_LEFT: &str = "client_left";
/// Reasons and [`CLIENT_LEFT`].
pub(super) const REASON_SLOTS: usize = Reason::ALL.len() + 1;

/// The `reason` label; `None` is a client that left undecided.
pub(super) fn reason_label(reason: Option<Reason>) -> &'static str {
    reason.map_or(CLIENT_LEFT, Reason::as_str)
}

/// The place of a decision in a crawler's table of decision counters.
pub(super) fn decision_slot(stage: Stage, verdict: Verdict, reason: Option<Reason>) -> usize {
    let reason = reason.map_or(Reason::ALL.len(), Reason::index);
    (stage as usize * Verdict::ALL.len() + verdict as usize) * REASON_SLOTS + reason
}

/// The number of places in that table.
pub(super) const DECISION_SLOTS: usize = Stage::ALL.len() * Verdict::ALL.len() * REASON_SLOTS;

/// The decisions that can occur, and so are shown as 0 until they do.
pub(super) fn decisions_that_occur() -> impl Iterator<Item = (Stage, Verdict, Option<Reason>)> {
    let rejects = Reason::ALL
        .into_iter()
        .flat_map(|reason| stages_of(reason).iter().map(move |s| (*s, Verdict::Reject, Some(reason))));
    let causes = [Some(Reason::Rule), Some(Reason::Default)];
    let allows = [Stage::Destination, Stage::Upstream, Stage::Response]
        .into_iter()
        .flat_map(move |stage| causes.map(move |cause| (stage, Verdict::Allow, cause)));
    let shadows = [Stage::Request, Stage::Destination, Stage::Response]
        .map(|stage| (stage, Verdict::ShadowReject, Some(Reason::Rule)));
    let left = [Stage::Destination, Stage::Upstream].map(|stage| (stage, Verdict::Allow, None));
    rejects.chain(allows).chain(shadows).chain(left)
}

/// The stages at which a reason can end a request; others are counted too, but not shown before they occur.
fn stages_of(reason: Reason) -> &'static [Stage] {
    match reason {
        Reason::Rule | Reason::Default => &[Stage::Request, Stage::Destination, Stage::Response],
        Reason::TooDeep => &[Stage::Request],
        Reason::AmbiguousUrl => &[Stage::Target, Stage::Request],
        Reason::BodyTooLarge => &[Stage::Response],
        Reason::SoftError => &[Stage::Document],
        Reason::Noncanonical | Reason::Noindex => &[Stage::Response, Stage::Document],
        Reason::RobotsTxt | Reason::RobotsUnreachable => &[Stage::Robots],
        Reason::IpProhibited => &[Stage::Destination],
        Reason::UpstreamDns => &[Stage::Destination],
        Reason::Undecided => &[Stage::Connect],
        Reason::PortDenied => &[Stage::Destination, Stage::Connect],
        Reason::HostMismatch | Reason::BadRequest | Reason::RequestTimeout => {
            &[Stage::Target, Stage::Connect]
        }
        Reason::MethodDenied
        | Reason::UpgradeDenied
        | Reason::SchemeDenied
        | Reason::HeadersTooLarge
        | Reason::Loop => &[Stage::Target],
        Reason::RequestTooLarge => &[Stage::Target, Stage::Upstream],
        Reason::UpstreamConnect | Reason::UpstreamTimeout | Reason::UpstreamProtocol => &[Stage::Upstream],
        // A host's robots.txt is asked for first.
        Reason::UpstreamTls => &[Stage::Robots, Stage::Upstream],
        Reason::InternalError => &[Stage::Request, Stage::Upstream, Stage::Response],
        Reason::Unauthorized => &[Stage::Identify],
        Reason::Overloaded => &[Stage::Identify, Stage::Connect],
        Reason::RateLimited | Reason::QueueFull | Reason::HostBackoff | Reason::ShuttingDown => {
            &[Stage::Pace]
        }
    }
}

/// How fetches of robots.txt end: the names of `robots::standing::TABLE`, in its order.
pub const ROBOTS_RESULTS: [&str; 16] = [
    "file",
    "page",
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
pub(super) const HEAD_REASONS: [Reason; 4] =
    [Reason::BadRequest, Reason::RequestTooLarge, Reason::HeadersTooLarge, Reason::RequestTimeout];

/// The methods that are counted by name (RFC 9110 section 9.3, RFC 5789).
pub(super) const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", OTHER];
/// What is outside a closed set.
pub(super) const OTHER: &str = "other";

/// The place of a method in [`METHODS`].
pub(super) fn method_slot(method: &Method) -> usize {
    METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len() - 1)
}

/// The registered final statuses (IANA, "HTTP Status Code Registry"), in order.
const CODES: [&str; 60] = [
    "200", "201", "202", "203", "204", "205", "206", "207", "208", "226", "300", "301", "302", "303", "304",
    "305", "307", "308", "400", "401", "402", "403", "404", "405", "406", "407", "408", "409", "410", "411",
    "412", "413", "414", "415", "416", "417", "418", "421", "422", "423", "424", "425", "426", "428", "429",
    "431", "451", "500", "501", "502", "503", "504", "505", "506", "507", "508", "510", "511", OTHER, "none",
];
const CODE_OTHER: usize = CODES.len() - 2;
const CODE_NONE: usize = CODES.len() - 1;

/// The same as numbers, for the look-up.
const NUMBERS: [u16; 58] = [
    200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 402,
    403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425,
    426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511,
];

/// The place of a sent status in the codes that are counted by number.
pub(super) fn code_slot(status: Option<u16>) -> usize {
    status.map_or(CODE_NONE, |status| NUMBERS.binary_search(&status).unwrap_or(CODE_OTHER))
}

/// The place of a request in a crawler's table of request counters.
pub(super) fn request_slot(method: usize, code: usize, source: Source) -> usize {
    (method * CODES.len() + code) * Source::ALL.len() + source as usize
}

/// The number of places in that table.
pub(super) const REQUEST_SLOTS: usize = METHODS.len() * CODES.len() * Source::ALL.len();

/// The labels `method` and `code` of a place.
pub(super) fn request_labels(method: usize, code: usize) -> (&'static str, &'static str) {
    (METHODS.get(method).copied().unwrap_or(OTHER), CODES.get(code).copied().unwrap_or(OTHER))
}

/// The requests that are shown as 0 until they occur: a GET with each status that the proxy answers by itself, and
/// with the everyday ones of origins. Origins may send any other; those appear when they do.
pub(super) fn requests_that_occur() -> impl Iterator<Item = (u16, Source)> {
    const OWN: [u16; 19] =
        [200, 304, 400, 403, 404, 405, 407, 408, 410, 413, 414, 429, 431, 451, 500, 501, 502, 503, 504];
    const EVERYDAY: [u16; 8] = [200, 301, 302, 304, 403, 404, 500, 503];
    let own = OWN.map(|code| (code, Source::Proxy));
    own.into_iter().chain(EVERYDAY.map(|code| (code, Source::Origin)))
}

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
    UPSTREAM_ERRORS.iter().position(|name| *name == error).unwrap_or(UPSTREAM_ERRORS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_place_of_a_table_is_taken_once() {
        let mut places = BTreeSet::new();
        for stage in Stage::ALL {
            for verdict in Verdict::ALL {
                for reason in Reason::ALL.into_iter().map(Some).chain([None]) {
                    assert!(places.insert(decision_slot(stage, verdict, reason)));
                }
            }
        }
        assert_eq!((places.len(), places.last()), (DECISION_SLOTS, Some(&(DECISION_SLOTS - 1))));

        let mut places = BTreeSet::new();
        for method in 0..METHODS.len() {
            for code in 0..CODES.len() {
                for source in Source::ALL {
                    assert!(places.insert(request_slot(method, code, source)));
                }
            }
        }
        assert_eq!((places.len(), places.last()), (REQUEST_SLOTS, Some(&(REQUEST_SLOTS - 1))));
    }

    #[test]
    fn codes_and_their_numbers_are_one_list() {
        for (place, number) in NUMBERS.into_iter().enumerate() {
            assert_eq!(CODES[place], number.to_string());
            assert_eq!(code_slot(Some(number)), place);
        }
        for (status, label) in [(None, "none"), (Some(760), OTHER), (Some(299), OTHER), (Some(0), OTHER)] {
            assert_eq!(CODES[code_slot(status)], label, "{status:?}");
        }
    }

    #[test]
    fn unknown_methods_and_statuses_are_other() {
        assert_eq!(METHODS[method_slot(&Method::HEAD)], "HEAD");
        assert_eq!(METHODS[method_slot(&Method::from_bytes(b"BREW").unwrap())], OTHER);
        for (status, class) in
            [(100, "1xx"), (204, "2xx"), (599, "5xx"), (600, OTHER), (0, OTHER), (760, OTHER)]
        {
            assert_eq!(CODE_CLASSES[class_slot(status)], class, "{status}");
        }
        assert_eq!(UPSTREAM_ERRORS[error_slot("dns_error")], "dns_error");
        assert_eq!(UPSTREAM_ERRORS[error_slot("evil\nname")], OTHER);
    }

    #[test]
    fn every_reason_can_occur_somewhere() {
        for reason in Reason::ALL {
            assert!(decisions_that_occur().any(|(_, _, r)| r == Some(reason)), "{reason:?}");
        }
    }
}
