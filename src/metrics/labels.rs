//! The closed sets of label values, and which combinations are exported from the start.
//!
//! No text of a client or an origin becomes a label. A value outside its set is `other`.

mod decision;
mod request;

use crate::ledger::code::OmnifindCode;
use crate::ledger::event::LedgerEventKind;
use crate::ledger::removal::RemovalCauseKind;
use crate::model::crawl_status::CrawlStatus;
use crate::model::words::words;
use crate::robots::agent::RobotsTokenSource;
use crate::robots::fetch_outcome::RobotsFetchOutcome;

pub use decision::CLIENT_LEFT;
pub(super) use decision::{
    DECISION_COUNT, decision_from_index, decision_index, possible_decisions, reason_label,
};
pub(super) use request::{
    REQUEST_SLOTS, code_slot, expected_requests, method_slot, request_labels, request_slot,
};

/// A label, or two, with a closed set of values.
pub(super) trait LabelSet: Copy {
    /// The number of values.
    const COUNT: usize;

    /// Returns the label values of every series, in order.
    fn all() -> Vec<Vec<&'static str>>;

    /// Returns the position of this value in [`Self::all`].
    fn index(self) -> usize;
}

impl<A: LabelSet, B: LabelSet> LabelSet for (A, B) {
    const COUNT: usize = A::COUNT * B::COUNT;

    fn all() -> Vec<Vec<&'static str>> {
        let pairs = A::all()
            .into_iter()
            .flat_map(|a| B::all().into_iter().map(move |b| [a.clone(), b].concat()));
        pairs.collect()
    }

    fn index(self) -> usize {
        self.0.index() * B::COUNT + self.1.index()
    }
}

/// Implements [`LabelSet`] for an enum with `ALL` and `as_str`.
macro_rules! label_set {
    ($type:ty) => {
        impl $crate::metrics::labels::LabelSet for $type {
            const COUNT: usize = Self::ALL.len();

            fn all() -> Vec<Vec<&'static str>> {
                Self::ALL.map(|value| vec![value.as_str()]).into()
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
pub(super) use label_set;

/// Declares enums whose variants are the values of a label.
macro_rules! label_values {
    ($($(#[$about:meta])* $vis:vis enum $name:ident { $($variants:tt)+ })+) => {
        $crate::model::words::words! {
            $($(#[$about])* $vis enum $name { $($variants)+ })+
        }
        $($crate::metrics::labels::label_set!($name);)+
    };
}
pub(super) use label_values;

label_set!(CrawlStatus);
label_set!(LedgerEventKind);
label_set!(RemovalCauseKind);

impl Http2ErrorCode {
    /// Returns the label of a code in a frame.
    pub fn from_code(code: u32) -> Self {
        match code {
            1 => Self::ProtocolError,
            3 => Self::FlowControlError,
            4 => Self::SettingsTimeout,
            5 => Self::StreamClosed,
            6 => Self::FrameSizeError,
            7 => Self::RefusedStream,
            9 => Self::CompressionError,
            11 => Self::EnhanceYourCalm,
            _ => Self::Other,
        }
    }
}

impl LabelSet for OmnifindCode {
    const COUNT: usize = Self::ALL.len();

    fn all() -> Vec<Vec<&'static str>> {
        Self::ALL.map(|code| vec![code.as_str()]).into()
    }

    fn index(self) -> usize {
        OmnifindCode::index(self)
    }
}

label_set!(RobotsTokenSource);
label_set!(RobotsFetchOutcome);

words! {
    /// The amount of metrics: the setting `telemetry.metrics`.
    pub enum MetricsMode {
        All = "full",
        /// Only the families with `essential`, which do not count requests, connections and hosts.
        EssentialOnly = "none",
    }
}

label_values! {
    /// The outcome of inspecting a response body; the label `outcome` of `documents_total`.
    pub enum DocumentOutcome {
        /// Its metadata was read.
        Read = "read",
        /// It was changed.
        Changed = "changed",
        /// It could not be parsed.
        Unreadable = "unreadable",
        /// Its content was to be compared, but exceeds the size that may be buffered.
        TooLarge = "too_large",
    }

    /// The verdict on a request; the label `verdict`.
    pub enum VerdictLabel {
        /// The request was allowed.
        Allow = "allow",
        /// The request was refused.
        Reject = "reject",
        /// The request was allowed; a rule in shadow mode would have refused it.
        ShadowReject = "shadow_reject",
    }

    /// The source of a response; the label `source`.
    pub enum ResponseSource {
        /// The origin's response was forwarded.
        Origin = "origin",
        /// The proxy created the response, or there was none.
        Proxy = "proxy",
    }

    /// The reason for which spans are lost; the label `why` of `trace_spans_dropped_total`.
    pub enum SpanLossReason {
        /// More spans than could be sent.
        QueueFull = "queue_full",
        /// The collector cannot be reached, or responds with an error.
        Failed = "failed",
        /// The collector accepted only other spans of the same export.
        Rejected = "rejected",
        /// The proxy shut down before they were sent.
        Shutdown = "shutdown",
    }

    /// A target of the ledger's events; the label `feed`.
    pub enum FeedTarget {
        /// `ledger.events.file`.
        File = "file",
        /// `ledger.events.webhook`.
        Webhook = "webhook",
    }

    /// The result of forwarding a request to the owner of its host; the label `result` of `fleet_forwarded_total`.
    pub enum ForwardResult {
        /// The owner has answered.
        Answered = "answered",
        /// The node was not the owner, or not any more.
        Moved = "moved",
        /// The node could not be reached, so that nothing was sent.
        Unreachable = "unreachable",
        /// The link broke off before an answer began.
        Lost = "lost",
        /// No owner was found in time, or the request could not be sent again: `owner_unavailable`.
        Refused = "refused",
    }

    /// The state of a link; the label `state` of `fleet_links`.
    pub enum LinkStateLabel {
        /// A connection to another node.
        Open = "open",
        /// A node that could not be reached at the last attempt.
        Failing = "failing",
    }

    /// The state of a member of the fleet; the label `state` of `fleet_members`.
    pub enum MemberStateLabel {
        Active = "active",
        /// It gives its partitions away.
        Draining = "draining",
        /// It has not renewed its lease for the length of a lease.
        Silent = "silent",
    }

    /// The owner of a partition as this node sees it; the label `state` of `fleet_partitions`.
    pub enum PartitionStateLabel {
        Own = "own",
        OfOthers = "of_others",
        Unowned = "unowned",
    }

    /// The reason for which this node has taken a partition; the label `why` of `fleet_takeovers_total`.
    pub enum TakeoverReason {
        /// It had no owner.
        Free = "free",
        /// It was this node's until its lease ended.
        Lapsed = "lapsed",
        /// Its owner was silent.
        Silent = "silent",
    }

    /// A request to the store of the fleet; the label `op` of `store_requests_total`.
    pub enum StoreOperation {
        Connect = "connect",
        Join = "join",
        Renew = "renew",
        Take = "take",
        Release = "release",
        Leave = "leave",
        /// Reading and writing stops.
        Stops = "stops",
        /// Taking a part of a daily budget.
        Budget = "budget",
        /// Writing the rests of hosts.
        Rests = "rests",
    }

    /// The result of a request to the store; the label `result` of `store_requests_total`.
    pub enum StoreResult {
        Ok = "ok",
        Error = "error",
        Timeout = "timeout",
    }

    /// The result of delivering an event; the label `result` of `ledger_feed_events_total`.
    pub enum FeedResult {
        /// The target accepted it.
        Delivered = "delivered",
        /// The target rejected it, and it was written to the dead letters.
        DeadLetter = "dead_letter",
    }

    /// A protocol detected on the proxy's port, or in a tunnel to a port without TLS; the label `reason` of
    /// `foreign_bytes_total`.
    pub enum ForeignBytesKind {
        /// A TLS ClientHello: the client uses TLS to connect to the proxy.
        ClientHello = "client_hello",
        /// The HTTP/2 connection preface.
        Http2Preface = "http2_preface",
        /// Inside a tunnel: bytes that cannot start a request.
        Unknown = "unknown",
    }

    /// The reason why a connection of a load balancer does not begin with a header of the PROXY protocol; the label
    /// `reason` of `proxy_protocol_failures_total`.
    pub enum ProxyHeaderFailure {
        /// It begins with other bytes.
        Missing = "missing",
        /// The header violates the protocol.
        Malformed = "malformed",
        /// The header is longer than the limit.
        TooLong = "too_long",
        /// The connection ended in the middle of the header.
        Incomplete = "incomplete",
        /// The header did not arrive in time.
        Timeout = "timeout",
    }

    /// The cause of a stream to an origin that failed, or of a connection that was closed; the label `reason` of
    /// `upstream_http2_failures_total`.
    pub enum OriginHttp2Failure {
        /// The origin closes the connection (GOAWAY) and has not processed the stream.
        GoAway = "go_away",
        /// The origin has not processed the stream (REFUSED_STREAM).
        RefusedStream = "refused_stream",
        /// The origin reset the stream for another reason.
        Reset = "reset",
        /// The origin requires HTTP/1.1.
        Http11Required = "http_1_1_required",
        /// The connection ended in the middle of the stream.
        Closed = "closed",
        /// The origin violated the protocol.
        Protocol = "protocol_error",
        /// The origin violated the windows.
        FlowControl = "flow_control_error",
        /// The origin sent a frame of a wrong size.
        FrameSize = "frame_size_error",
        /// The origin sent fields that cannot be decompressed.
        Compression = "compression_error",
        /// The origin exceeded a limit of the HTTP/2 library: too many frames for one head, too many small or reset
        /// ones.
        EnhanceYourCalm = "enhance_your_calm",
        /// The head of a response exceeds the limit.
        HeadTooLarge = "head_too_large",
        /// Too many interim responses (1xx).
        Interim = "interim",
        /// Too many SETTINGS frames.
        Settings = "settings_flood",
        /// Too many PING frames.
        Ping = "ping_flood",
        /// Too many RST_STREAM frames.
        RstStream = "rst_stream_flood",
        /// Too many HEADERS or CONTINUATION frames.
        Headers = "headers_flood",
        /// Too many DATA frames without data.
        EmptyData = "empty_data_flood",
        /// Too many WINDOW_UPDATE frames.
        WindowUpdate = "window_update_flood",
        /// Too many frames of other types.
        OtherFrames = "other_flood",
        /// The origin reads nothing, so that the connection cannot be written to.
        WriteStall = "write_stall",
    }

    /// A limit of HTTP/2 that a client has exceeded; the label `limit` of `http2_limits_total`.
    pub enum Http2Limit {
        /// Streams that it reset, or that were reset because of a violation.
        Resets = "resets",
        /// PING frames.
        Pings = "pings",
        /// SETTINGS frames.
        Settings = "settings",
        /// PRIORITY frames, and frames of unknown types.
        Priorities = "priorities",
        /// CONTINUATION frames of one field section.
        Continuations = "continuations",
        /// WINDOW_UPDATE frames by a few bytes.
        SmallWindows = "small_windows",
        /// The time of the preface or of a field section.
        HeadTimeout = "head_timeout",
        /// The time in which it opened no window for a response. Only the stream is reset.
        WriteStall = "write_stall",
    }

    /// The extent of an error of HTTP/2; the label `scope` of `http2_errors_total`.
    pub enum Http2ErrorScope {
        /// GOAWAY.
        Connection = "connection",
        /// RST_STREAM.
        Stream = "stream",
    }

    /// A code of RFC 9113 section 7 with which the proxy answers a violation; the label `code` of
    /// `http2_errors_total`.
    pub enum Http2ErrorCode {
        ProtocolError = "protocol_error",
        FlowControlError = "flow_control_error",
        SettingsTimeout = "settings_timeout",
        StreamClosed = "stream_closed",
        FrameSizeError = "frame_size_error",
        RefusedStream = "refused_stream",
        CompressionError = "compression_error",
        EnhanceYourCalm = "enhance_your_calm",
        /// Another code.
        Other = "other",
    }

    /// The verdict on a CONNECT; the label `verdict` of `tunnels_total`.
    pub enum TunnelVerdictLabel {
        /// It was allowed, possibly without knowing its contents (`tunnel_undecided: allow`).
        Allow = "allow",
        /// It was refused.
        Reject = "reject",
        /// It was refused because the policy has conditions on what a tunnel hides.
        Undecided = "undecided",
        /// It was allowed and is intercepted: the requests inside are evaluated.
        Intercept = "intercept",
    }

    /// The first bytes inside a tunnel to a TLS port; the label `category` of `sni_checks_total`.
    pub enum SniCheck {
        /// A ClientHello for the host of the CONNECT.
        Match = "match",
        /// A ClientHello for another host.
        Mismatch = "mismatch",
        /// A ClientHello without a server name.
        None = "none",
        /// A ClientHello for the host of the CONNECT that may hide another (Encrypted Client Hello, or grease that
        /// looks like it).
        Ech = "ech",
        NotTls = "not_tls",
        /// TLS without a readable ClientHello.
        Malformed = "malformed",
        /// No complete ClientHello in time.
        Timeout = "timeout",
    }

    /// The cause of a handshake that a client aborted or failed; the label `cause` of `client_tls_failures_total`.
    pub enum ClientTlsFailureCause {
        /// It rejected the certificate: by an alert, or by leaving before it has ever completed a handshake.
        Distrust = "distrust",
        /// It left, but has completed handshakes before.
        Left = "left",
        /// It sent an alert that is not about the certificate.
        Alert = "alert",
        /// It violated the protocol, or has no version or cipher in common with the proxy.
        Protocol = "protocol",
        /// It did not complete the handshake in time.
        Timeout = "timeout",
        /// Its connection failed.
        Io = "io",
    }

    /// The peer of a TLS connection; the label `side` of `tls_handshake_seconds`.
    pub enum TlsSide {
        /// A client, inside its tunnel.
        Client = "client",
        Origin = "origin",
    }

    /// The mode of a rule; the label `mode` of its counters.
    pub enum RuleMode {
        /// The rule is applied.
        Enforce = "enforce",
        /// The rule is only evaluated.
        Shadow = "shadow",
        /// The rule is off and has no counters.
        Disabled = "disabled",
    }

    /// The result of loading a policy; the label `result` of `policy_reloads_total`.
    pub(super) enum ReloadResult {
        Success = "success",
        Failure = "failure",
        Unchanged = "unchanged",
    }

    /// The direction in which bytes pass; the label `direction` of `bytes_total`.
    pub(super) enum ByteDirection {
        Received = "received",
        Sent = "sent",
    }

    /// The peer that bytes are exchanged with; the label `side` of `bytes_total`.
    pub(super) enum ConnectionSide {
        Client = "client",
        Origin = "origin",
    }

    /// The first digit of an origin's status; the label `code_class`.
    pub(super) enum CodeClass {
        Informational = "1xx",
        Successful = "2xx",
        Redirection = "3xx",
        ClientError = "4xx",
        ServerError = "5xx",
        Other = "other",
    }
}

/// The kind of a rule, which determines its verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// The rule refuses.
    Filter,
    /// The rule refuses or allows, by the options that it sets.
    Group,
}

impl CodeClass {
    pub(super) fn from_status(status: u16) -> Self {
        match status {
            100..200 => Self::Informational,
            200..300 => Self::Successful,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500..600 => Self::ServerError,
            _ => Self::Other,
        }
    }
}

/// The label of everything outside a closed set.
pub(super) const OTHER: &str = "other";

/// The error types of RFC 9209 section 2.3 that an exchange with an origin can end in.
const UPSTREAM_ERRORS: [&str; 28] = [
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
    "proxy_configuration_error",
    "proxy_internal_error",
    OTHER,
];

/// An error type of RFC 9209; the label `error` of `upstream_errors_total`.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpstreamErrorLabel(usize);

impl UpstreamErrorLabel {
    pub(super) fn from_name(error: &str) -> Self {
        let known = UPSTREAM_ERRORS.iter().position(|name| *name == error);
        Self(known.unwrap_or(UPSTREAM_ERRORS.len() - 1))
    }
}

impl LabelSet for UpstreamErrorLabel {
    const COUNT: usize = UPSTREAM_ERRORS.len();

    fn all() -> Vec<Vec<&'static str>> {
        UPSTREAM_ERRORS.map(|name| vec![name]).into()
    }

    fn index(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_become_other() {
        for (status, class) in [
            (100, "1xx"),
            (204, "2xx"),
            (301, "3xx"),
            (404, "4xx"),
            (599, "5xx"),
            (600, OTHER),
            (0, OTHER),
            (760, OTHER),
        ] {
            assert_eq!(CodeClass::from_status(status).as_str(), class, "{status}");
        }
        for (error, label) in [("dns_error", "dns_error"), ("evil\nname", OTHER)] {
            let index = UpstreamErrorLabel::from_name(error).index();
            assert_eq!(UpstreamErrorLabel::all()[index], [label]);
        }
    }

    #[test]
    fn pairs_are_listed_in_their_order() {
        type Pair = (FeedTarget, FeedResult);
        let all = Pair::all();
        assert_eq!(all.len(), Pair::COUNT);
        for target in FeedTarget::ALL {
            for result in FeedResult::ALL {
                let index = (target, result).index();
                assert_eq!(all[index], [target.as_str(), result.as_str()]);
            }
        }
    }
}
