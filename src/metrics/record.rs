//! The record of a request: a guard that is filled while the request proceeds, and counted and logged exactly once,
//! when it is dropped.
//!
//! It is created when a request's head is complete, and moves with the request into the body of its response. Whatever
//! ends the request (the last byte, a client that left, a panic) drops it, and the drop counts it, in `completion.rs`.
//! No setter takes a lock, allocates or reads a clock.

mod decision_id;
mod parts;
mod recorder;

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method};
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::urls::target::{HostTarget, UrlTarget};

use super::CrawlerIndex;
use super::content::ContentFamily;
use super::labels::ResponseSource;
use super::policy::PolicyMetrics;
use super::shadow::{ShadowChange, ShadowNotes};
use super::trace::RequestTrace;

use parts::{Micros, RequestTimes};
use recorder::RecorderInner;

pub use decision_id::{DecisionId, DecisionIdText};
pub use parts::UrlRetention;
pub(super) use parts::{
    CountMode, LossCause, RecordOutcome, RecordSubject, RefusalDetail, ResponseProgress,
};
pub use recorder::Recorder;

/// The record of a request. Every setter overwrites the previous value.
#[must_use]
pub struct RequestRecord {
    pub(super) recorder: Arc<RecorderInner>,
    pub(super) number: u64,
    pub(super) began: Instant,
    /// The end of the request, if it is known and need not be read from the clock.
    pub(super) ended: Option<Instant>,
    pub(super) response_progress: ResponseProgress,
    pub(super) method: Method,
    pub(super) crawler: CrawlerIndex,
    pub(super) client: Option<IpAddr>,
    pub(super) subject: RecordSubject,
    pub(super) stage: Stage,
    pub(super) policy: Option<Arc<PolicyMetrics>>,
    pub(super) outcome: RecordOutcome,
    pub(super) matched_rules: SmallVec<[u32; 8]>,
    pub(super) shadows: Option<Box<ShadowNotes>>,
    pub(super) url_retention: UrlRetention,
    pub(super) origin: Option<(u16, ContentFamily)>,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) source: Option<HeaderValue>,
    /// The product token of a refusal by robots.txt, or the cause of a failure.
    pub(super) refusal_detail: Option<Box<RefusalDetail>>,
    pub(super) sent: Option<(u16, ResponseSource)>,
    pub(super) times: RequestTimes,
    received_bytes: u64,
    upload_meter: Option<Arc<AtomicU64>>,
    pub(super) sent_bytes: u64,
    pub(super) address: Option<IpAddr>,
    /// The parent proxy through which the request goes.
    pub(super) parent: Option<Arc<str>>,
    /// `true` if the origin was asked over HTTP/2.
    pub(super) used_http2: bool,
    pub(super) error: Option<&'static str>,
    /// The reason for which the proxy closes a tunnel, or the error type of a refusal that replaces the answer.
    pub(super) other_error: Option<&'static str>,
    pub(super) count_mode: CountMode,
    /// The node of the fleet that has forwarded the request.
    pub(super) entry: Option<Arc<str>>,
    pub(super) trace: Option<Box<RequestTrace>>,
}

impl RequestRecord {
    /// Creates the record of the `number`th request.
    fn new(recorder: Arc<RecorderInner>, number: u64, began: Instant, method: &Method) -> Self {
        let trace = recorder
            .tracing
            .as_ref()
            .and_then(|tracing| tracing.begin_trace(number));
        Self {
            recorder,
            number,
            began,
            ended: None,
            response_progress: ResponseProgress::Partial,
            method: method.clone(),
            crawler: CrawlerIndex::ANONYMOUS,
            client: None,
            subject: RecordSubject::Unknown,
            stage: Stage::Identify,
            policy: None,
            outcome: RecordOutcome::Pending,
            matched_rules: SmallVec::new(),
            shadows: None,
            // Until the policy is known, which may keep nothing.
            url_retention: UrlRetention::None,
            origin: None,
            content_type: None,
            source: None,
            refusal_detail: None,
            sent: None,
            times: RequestTimes::default(),
            received_bytes: 0,
            upload_meter: None,
            sent_bytes: 0,
            address: None,
            parent: None,
            used_http2: false,
            error: None,
            other_error: None,
            count_mode: CountMode::Counted,
            entry: None,
            trace,
        }
    }

    /// Returns the id for `Crawl-Decision`, the problem document and the log.
    pub fn id(&self) -> DecisionId {
        self.recorder.id(self.number)
    }

    /// The clock that is read when the record ends.
    pub fn clock(&self) -> &Clock {
        &self.recorder.clock
    }

    pub fn set_crawler(&mut self, crawler: CrawlerIndex) {
        self.crawler = crawler;
    }

    /// Sets the client's address, which is shown in the log's `squid` format.
    pub fn set_client(&mut self, address: IpAddr) {
        self.client = Some(address);
    }

    /// Sets the node of the fleet that has forwarded the request to this one.
    pub fn set_entry(&mut self, node: Arc<str>) {
        self.entry = Some(node);
    }

    /// Sets the canonical target.
    pub fn set_target(&mut self, target: &UrlTarget) {
        self.subject = RecordSubject::Url(target.clone());
    }

    /// Sets the host of a CONNECT.
    pub fn set_host(&mut self, host: &HostTarget) {
        self.subject = RecordSubject::Host(host.clone());
    }

    /// Sets the stage that the request has reached; the last one is the one that ended it.
    pub fn enter_stage(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// The stage that the request has reached.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Sets the policy that the request is evaluated under, and discards the results of an earlier one: the policy may
    /// change while a request is held.
    pub fn set_policy(&mut self, policy: &Arc<PolicyMetrics>) {
        self.policy = Some(Arc::clone(policy));
        self.outcome = RecordOutcome::Pending;
        self.matched_rules.clear();
        self.shadows = None;
        self.source = None;
        self.refusal_detail = None;
    }

    /// Sets the rules that matched so far, at all stages, by their index in the policy; each is counted once.
    pub fn set_matched_rules(&mut self, rules: impl IntoIterator<Item = u32>) {
        self.matched_rules.clear();
        self.matched_rules.extend(rules);
    }

    /// Records that the policy allows the request at its stage; `rule` is the rule that decided, `None` for the default.
    pub fn set_allowed(&mut self, rule: Option<u32>) {
        self.outcome = RecordOutcome::Allowed { rule };
    }

    /// Records that the request is refused at its stage; `rule` is the rule that decided, if any. `keep` is how much of the
    /// URL the log may show.
    pub fn set_rejected(&mut self, reason: Reason, rule: Option<u32>, url_retention: UrlRetention) {
        self.outcome = RecordOutcome::Rejected {
            reason,
            rule,
            intent: reason.intent(),
            code: None,
        };
        self.url_retention = url_retention;
    }

    /// Sets the intent of the refusal, if the policy has chosen another one than that of the reason.
    pub fn set_refusal_intent(&mut self, chosen: Option<Intent>) {
        if let RecordOutcome::Rejected { intent, .. } = &mut self.outcome {
            *intent = chosen;
        }
    }

    /// Sets the code of the refusal, if it has another one than that of the reason.
    pub fn set_refusal_code(&mut self, chosen: u16) {
        if let RecordOutcome::Rejected { code, .. } = &mut self.outcome {
            *code = NonZeroU16::new(chosen);
        }
    }

    /// Returns the part of the URL that the log keeps of a refusal so far; nothing before the policy is known.
    pub fn url_retention(&self) -> UrlRetention {
        self.url_retention
    }

    /// Sets the part of the URL that the log keeps if the request ends in a panic.
    pub fn set_url_retention(&mut self, url_retention: UrlRetention) {
        self.url_retention = url_retention;
    }

    /// Sets the results of shadow rules and the shadow policy so far.
    pub fn set_shadows(&mut self, notes: Option<Box<ShadowNotes>>) {
        self.shadows = notes;
    }

    /// Returns the value of `Crawl-Shadow`: the shadow verdicts that differ from the active one, `None` if none does.
    pub fn shadow_header(&self) -> Option<String> {
        self.shadows
            .as_ref()?
            .header_value(self.shadow_change()?, self.policy.as_ref())
    }

    /// Returns the change that a shadow can have made, given the outcome of the request.
    pub(super) fn shadow_change(&self) -> Option<ShadowChange> {
        match self.outcome {
            RecordOutcome::Pending => None,
            RecordOutcome::Allowed { .. } => Some(ShadowChange::WouldReject),
            RecordOutcome::Rejected { .. } => Some(ShadowChange::WouldAllow),
        }
    }

    /// Records the time of the request stage's verdict, which ends the decision's duration.
    pub fn set_decided_at(&mut self, now: Instant) {
        self.times.decision = Micros::from(now.saturating_duration_since(self.began));
    }

    /// Sets the time for which the request was held.
    pub fn set_held(&mut self, time: Duration) {
        self.times.held = Micros::from(time);
    }

    /// Sets the duration of the name lookup; not called if there was none.
    pub fn set_dns_time(&mut self, time: Duration) {
        self.times.dns = Micros::from(time);
    }

    /// Sets the duration of opening a new connection; not called for a reused one.
    pub fn set_connect_time(&mut self, time: Duration) {
        self.times.connect = Micros::from(time);
    }

    /// Sets the duration of the TLS handshake with the origin.
    pub fn set_tls_time(&mut self, time: Duration) {
        self.times.tls = Micros::from(time);
    }

    /// Sets the address that the request is sent to, or the first one that is tried.
    pub fn set_address(&mut self, address: IpAddr) {
        self.address = Some(address);
    }

    /// Sets the parent proxy through which the request goes.
    pub fn set_parent(&mut self, name: Arc<str>) {
        self.parent = Some(name);
    }

    /// Records that the origin was asked over HTTP/2.
    pub fn set_used_http2(&mut self) {
        self.used_http2 = true;
    }

    /// Records the origin's response head, received `ttfb` after the decision to send the request.
    ///
    /// The log shows the essence of the content type, as rules see it.
    pub fn set_origin_response(
        &mut self,
        status: u16,
        content_type: Option<&HeaderValue>,
        ttfb: Duration,
    ) {
        let family = ContentFamily::from_content_type(content_type.map(HeaderValue::as_bytes));
        self.origin = Some((status, family));
        self.times.ttfb = Micros::from(ttfb);
        self.content_type = content_type.cloned();
    }

    /// Sets the product token for which a line of robots.txt decided.
    pub fn set_robots_agent(&mut self, token: &str) {
        self.refusal_detail = Some(Box::new(RefusalDetail::RobotsAgent(token.into())));
    }

    /// Sets a description of what failed between the proxy and the origin, for a refusal that replaces the answer.
    pub fn set_failure_cause(&mut self, cause: &str) {
        self.refusal_detail = Some(Box::new(RefusalDetail::FailureCause(cause.into())));
    }

    /// Sets the value of the policy's option `source`, which is shown in the log.
    pub fn set_source(&mut self, source: &HeaderValue) {
        self.source = Some(source.clone());
    }

    /// Records that the exchange with the origin failed; `error` is an RFC 9209 type. Counted, and shown in the log.
    pub fn set_upstream_error(&mut self, error: &'static str) {
        self.error = Some(error);
    }

    /// Marks the tunnel as open. From then on no client waits for a response, and the tunnel counts as open until the
    /// record ends.
    pub fn mark_tunnel_open(&mut self) {
        self.count_mode = match self.count_mode {
            CountMode::Counted => CountMode::Tunnel,
            CountMode::Forwarded => CountMode::Discarded,
            CountMode::Tunnel | CountMode::Discarded => return,
        };
        let metrics = &self.recorder.metrics;
        metrics.update(|families| families.inflight.dec());
    }

    /// Discards the record of an intercepted tunnel, whose requests have their own records, or of a request that another
    /// node has answered: it is neither counted nor logged.
    pub fn discard(mut self) {
        if self.count_mode == CountMode::Forwarded {
            self.export_forwarded();
        }
        self.mark_tunnel_open();
        self.count_mode = CountMode::Discarded;
    }

    /// Records that another node has the request, and records it from now on.
    pub fn set_forwarded(&mut self) {
        if self.count_mode == CountMode::Counted {
            self.count_mode = CountMode::Forwarded;
        }
    }

    /// Records that no other node has the request: this one records it.
    pub fn set_returned(&mut self) {
        if self.count_mode == CountMode::Forwarded {
            self.count_mode = CountMode::Counted;
        }
    }

    /// Sets the reason for which the proxy closes the tunnel. It is shown in the log and is no error of the origin.
    pub fn set_close_reason(&mut self, reason: &'static str) {
        self.other_error = Some(reason);
    }

    /// Sets the RFC 9209 type of a failure for which the request is refused. It is shown in the log, and not counted:
    /// another exchange has failed, such as the fetch of the host's robots.txt.
    pub fn set_refusal_error(&mut self, error: &'static str) {
        self.other_error = Some(error);
    }

    /// Sets the status that is sent to the client, and the source of the response.
    pub fn set_sent_status(&mut self, status: u16, source: ResponseSource) {
        self.sent = Some((status, source));
    }

    /// Adds bytes received from the client.
    pub fn add_received_bytes(&mut self, bytes: u64) {
        self.received_bytes += bytes;
    }

    /// Sets the counter of the request body's bytes, which increases as they pass.
    pub fn set_upload_meter(&mut self, meter: Arc<AtomicU64>) {
        self.upload_meter = Some(meter);
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
            + self
                .upload_meter
                .as_ref()
                .map_or(0, |meter| meter.load(Ordering::Relaxed))
    }

    /// Adds bytes of the response body.
    pub fn add_sent_bytes(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// Records that the last byte of the response was handed over, or that it has no body; the following drop reads the
    /// clock.
    ///
    /// A record that is dropped without this, or without [`Self::finish`], is that of a client that left, unless it has an
    /// error. hyper does not poll a body after its last byte when the length is known, nor at all when it is empty or the
    /// response to HEAD: the owner of the body has to check `is_end_stream`.
    pub fn mark_complete(&mut self) {
        self.response_progress = ResponseProgress::Complete;
    }

    /// Ends the record at a known time, with a complete response.
    pub fn finish(mut self, now: Instant) {
        self.ended = Some(now);
        self.mark_complete();
    }
}

impl fmt::Debug for RequestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RequestRecord({} at {}, {:?})",
            self.id(),
            self.stage.as_str(),
            self.outcome
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_small_enough_to_move() {
        // A CONNECT moves it directly; other requests keep it in a box.
        assert!(
            size_of::<RequestRecord>() <= 448,
            "{}",
            size_of::<RequestRecord>()
        );
    }
}
