//! The record of one request: a guard that is filled on the way and counted and logged exactly once, when it ends.
//!
//! It is begun when a request's head is known and travels with the request into the body of its answer. Whatever
//! ends it (the last byte, a client that left, a panic) drops it, and the drop does the counting, in
//! `flush.rs`. Nothing is decided here, and no setter takes a lock, allocates or reads a clock.

mod decision_id;
mod parts;
mod recorder;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method};
use smallvec::SmallVec;

use crate::clock::Clock;
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
pub(super) use parts::{CountMode, RecordOutcome, RecordSubject, ResponseProgress};
pub use recorder::Recorder;

/// The record of one request. See the module's text; every setter overwrites what was set before.
#[must_use]
pub struct RequestRecord {
    pub(super) recorder: Arc<RecorderInner>,
    pub(super) number: u64,
    pub(super) began: Instant,
    /// When it ended, if that is told and need not be read from the clock.
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
    pub(super) sent: Option<(u16, ResponseSource)>,
    pub(super) times: RequestTimes,
    received_bytes: u64,
    upload_meter: Option<Arc<AtomicU64>>,
    pub(super) sent_bytes: u64,
    pub(super) address: Option<IpAddr>,
    pub(super) error: Option<&'static str>,
    pub(super) close_reason: Option<&'static str>,
    pub(super) count_mode: CountMode,
    pub(super) trace: Option<Box<RequestTrace>>,
}

impl RequestRecord {
    /// The record of the `number`th request, of which nothing is known but its method.
    fn new(books: Arc<RecorderInner>, number: u64, began: Instant, method: &Method) -> Self {
        let trace = books
            .tracing
            .as_ref()
            .and_then(|tracing| tracing.begin_trace(number));
        Self {
            recorder: books,
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
            url_retention: UrlRetention::Host,
            origin: None,
            content_type: None,
            source: None,
            sent: None,
            times: RequestTimes::default(),
            received_bytes: 0,
            upload_meter: None,
            sent_bytes: 0,
            address: None,
            error: None,
            close_reason: None,
            count_mode: CountMode::Counted,
            trace,
        }
    }

    /// The id for `Crawl-Decision`, the problem document and the log.
    pub fn id(&self) -> DecisionId {
        self.recorder.id(self.number)
    }

    /// The clock that tells when the record ends.
    pub fn clock(&self) -> &Clock {
        &self.recorder.clock
    }

    /// Sets who is asking.
    pub fn set_crawler(&mut self, crawler: CrawlerIndex) {
        self.crawler = crawler;
    }

    /// Sets the address that the request came from; shown in the log's `squid` format.
    pub fn set_client(&mut self, address: IpAddr) {
        self.client = Some(address);
    }

    /// Sets the canonical target.
    pub fn set_target(&mut self, target: &UrlTarget) {
        self.subject = RecordSubject::Url(target.clone());
    }

    /// Sets the host of a CONNECT.
    pub fn set_host(&mut self, host: &HostTarget) {
        self.subject = RecordSubject::Host(host.clone());
    }

    /// Notes that the request has come to this stage; the last one is the one that ended it.
    pub fn enter_stage(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// The stage that the request has come to.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Sets the policy that the request is judged under, and forgets what an earlier one said: after a hold the
    /// request may be judged again.
    pub fn set_policy(&mut self, policy: &Arc<PolicyMetrics>) {
        self.policy = Some(Arc::clone(policy));
        self.outcome = RecordOutcome::Pending;
        self.matched_rules.clear();
        self.shadows = None;
        self.source = None;
    }

    /// Sets the rules that matched so far, at all stages, by their indices in the policy; each counts once.
    pub fn set_matched_rules(&mut self, rules: impl IntoIterator<Item = u32>) {
        self.matched_rules.clear();
        self.matched_rules.extend(rules);
    }

    /// The policy lets the request pass the stage it is at; `rule` is the cause, `None` the policy's default.
    pub fn set_allowed(&mut self, rule: Option<u32>) {
        self.outcome = RecordOutcome::Allowed { rule };
    }

    /// The request is refused at the stage it is at; `rule` is the cause, if it is one. `keep` says what the log may
    /// show of the URL.
    pub fn set_rejected(&mut self, reason: Reason, rule: Option<u32>, keep: UrlRetention) {
        self.outcome = RecordOutcome::Rejected { reason, rule };
        self.url_retention = keep;
    }

    /// Sets what stands in shadow says so far; `None` if nothing stands there.
    pub fn set_shadows(&mut self, notes: Option<Box<ShadowNotes>>) {
        self.shadows = notes;
    }

    /// What `Crawl-Shadow` says: the verdicts in shadow that differ from the live one. `None` if none does.
    pub fn shadow_header(&self) -> Option<String> {
        self.shadows
            .as_ref()?
            .header_value(self.shadow_change()?, self.policy.as_ref())
    }

    /// What a shadow can have changed, after what became of the request.
    pub(super) fn shadow_change(&self) -> Option<ShadowChange> {
        match self.outcome {
            RecordOutcome::Pending => None,
            RecordOutcome::Allowed { .. } => Some(ShadowChange::WouldReject),
            RecordOutcome::Rejected { .. } => Some(ShadowChange::WouldAllow),
        }
    }

    /// The request stage has its verdict: ends the decision's duration.
    pub fn set_decided_at(&mut self, now: Instant) {
        self.times.decision = Micros::from(now.saturating_duration_since(self.began));
    }

    /// How long the request was held for politeness.
    pub fn set_held(&mut self, time: Duration) {
        self.times.held = Micros::from(time);
    }

    /// How long the name look-up took; not set when there was none.
    pub fn set_dns_time(&mut self, time: Duration) {
        self.times.dns = Micros::from(time);
    }

    /// How long the new connection took; not set when an idle one was taken.
    pub fn set_connect_time(&mut self, time: Duration) {
        self.times.connect = Micros::from(time);
    }

    /// How long the TLS handshake with the origin took.
    pub fn set_tls_time(&mut self, time: Duration) {
        self.times.tls = Micros::from(time);
    }

    /// The address that the request goes to.
    pub fn set_address(&mut self, address: IpAddr) {
        self.address = Some(address);
    }

    /// The origin's response head is here, `ttfb` after the request was sent.
    ///
    /// Of the content type the log shows what rules see: type and subtype.
    pub fn set_origin_response(
        &mut self,
        status: u16,
        content_type: Option<&HeaderValue>,
        ttfb: Duration,
    ) {
        let family = ContentFamily::from_content_type(content_type.map(HeaderValue::as_bytes));
        self.origin = Some((status, family));
        self.times.ttfb = Micros::from(ttfb);
        if self.recorder.log.is_enabled() {
            self.content_type = content_type.cloned();
        }
    }

    /// Sets what the policy's option `source` says; shown in the log.
    pub fn set_source(&mut self, source: &HeaderValue) {
        if self.recorder.log.is_enabled() {
            self.source = Some(source.clone());
        }
    }

    /// The exchange with the origin failed; `error` is an RFC 9209 type. Counted, and shown in the log.
    pub fn set_upstream_error(&mut self, error: &'static str) {
        self.error = Some(error);
    }

    /// The tunnel is open: what follows is no answer that anybody waits for. It counts as open until the record ends.
    pub fn mark_tunnel_open(&mut self) {
        if self.count_mode == CountMode::Counted {
            self.count_mode = CountMode::Tunnel;
            self.recorder
                .metrics
                .enabled_families()
                .iter()
                .for_each(|families| families.inflight.dec());
        }
    }

    /// The tunnel is looked into, and its requests have records of their own: this one is not counted, nor logged.
    pub fn discard(mut self) {
        self.mark_tunnel_open();
        self.count_mode = CountMode::Discarded;
    }

    /// The proxy closes the tunnel; `why` is shown in the log and is no failure of the origin.
    pub fn set_close_reason(&mut self, why: &'static str) {
        self.close_reason = Some(why);
    }

    /// The status that is sent to the client, and who made the answer.
    pub fn set_sent_status(&mut self, status: u16, source: ResponseSource) {
        self.sent = Some((status, source));
    }

    /// Adds bytes that the client sent.
    pub fn add_received_bytes(&mut self, bytes: u64) {
        self.received_bytes += bytes;
    }

    /// The request has a body, whose bytes are counted here as they pass.
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

    /// Adds bytes of the answer's body.
    pub fn add_sent_bytes(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// The last byte of the answer was handed over, or the answer has no body; the drop that follows reads the clock.
    ///
    /// A record that is dropped without this, or [`Self::finish`], is that of a client that left, unless it carries
    /// an error. hyper does not poll a body behind its last byte when the length is known, nor at all when it is
    /// empty or the answer to HEAD: whoever owns the body tells by `is_end_stream`.
    pub fn mark_complete(&mut self) {
        self.response_progress = ResponseProgress::Complete;
    }

    /// Ends the record at a time that is known: the answer is complete.
    pub fn finish(mut self, now: Instant) {
        self.ended = Some(now);
        self.mark_complete();
    }
}

impl fmt::Debug for RequestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Record({} at {}, {:?})",
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
        // A CONNECT moves it as it is; other requests carry it in a box.
        assert!(
            size_of::<RequestRecord>() <= 416,
            "{}",
            size_of::<RequestRecord>()
        );
    }
}
