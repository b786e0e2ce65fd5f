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
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::{HostTarget, UrlTarget};

use super::CrawlerIndex;
use super::content::ContentFamily;
use super::labels::Source;
use super::policy::PolicyMetrics;
use super::shadow::{Change, Notes};
use super::trace::Trace;

use parts::{Micros, Times};
use recorder::Books;

pub use decision_id::{DecisionId, DecisionText};
pub use parts::Keep;
pub(super) use parts::{Answer, Flight, Outcome, Subject};
pub use recorder::Recorder;

/// The record of one request. See the module's text; every setter overwrites what was set before.
#[must_use]
pub struct Record {
    pub(super) books: Arc<Books>,
    pub(super) number: u64,
    pub(super) began: Instant,
    /// When it ended, if that is told and need not be read from the clock.
    pub(super) ended: Option<Instant>,
    pub(super) answer: Answer,
    pub(super) method: Method,
    pub(super) crawler: CrawlerIndex,
    pub(super) client: Option<IpAddr>,
    pub(super) subject: Subject,
    pub(super) stage: Stage,
    pub(super) policy: Option<Arc<PolicyMetrics>>,
    pub(super) outcome: Outcome,
    pub(super) matched: SmallVec<[u32; 8]>,
    pub(super) shadows: Option<Box<Notes>>,
    pub(super) keep: Keep,
    pub(super) origin: Option<(u16, ContentFamily)>,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) source: Option<HeaderValue>,
    pub(super) sent: Option<(u16, Source)>,
    pub(super) times: Times,
    up: u64,
    uploads: Option<Arc<AtomicU64>>,
    pub(super) down: u64,
    pub(super) address: Option<IpAddr>,
    pub(super) error: Option<&'static str>,
    pub(super) closed: Option<&'static str>,
    pub(super) flight: Flight,
    pub(super) trace: Option<Box<Trace>>,
}

impl Record {
    /// The record of the `number`th request, of which nothing is known but its method.
    fn new(books: Arc<Books>, number: u64, began: Instant, method: &Method) -> Self {
        let trace = books
            .tracing
            .as_ref()
            .and_then(|tracing| tracing.begin(number));
        Self {
            books,
            number,
            began,
            ended: None,
            answer: Answer::Partial,
            method: method.clone(),
            crawler: CrawlerIndex::ANONYMOUS,
            client: None,
            subject: Subject::Unknown,
            stage: Stage::Identify,
            policy: None,
            outcome: Outcome::Pending,
            matched: SmallVec::new(),
            shadows: None,
            keep: Keep::Host,
            origin: None,
            content_type: None,
            source: None,
            sent: None,
            times: Times::default(),
            up: 0,
            uploads: None,
            down: 0,
            address: None,
            error: None,
            closed: None,
            flight: Flight::Counted,
            trace,
        }
    }

    /// The id for `Crawl-Decision`, the problem document and the log.
    pub fn id(&self) -> DecisionId {
        self.books.id(self.number)
    }

    /// The clock that tells when the record ends.
    pub fn clock(&self) -> &Clock {
        &self.books.clock
    }

    /// Sets who is asking.
    pub fn crawler(&mut self, crawler: CrawlerIndex) {
        self.crawler = crawler;
    }

    /// Sets the address that the request came from; shown in the log's `squid` format.
    pub fn client(&mut self, address: IpAddr) {
        self.client = Some(address);
    }

    /// Sets the canonical target.
    pub fn target(&mut self, target: &UrlTarget) {
        self.subject = Subject::Url(target.clone());
    }

    /// Sets the host of a CONNECT.
    pub fn host(&mut self, host: &HostTarget) {
        self.subject = Subject::Host(host.clone());
    }

    /// Notes that the request has come to this stage; the last one is the one that ended it.
    pub fn enter(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// The stage that the request has come to.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Sets the policy that the request is judged under, and forgets what an earlier one said: after a hold the
    /// request may be judged again.
    pub fn judged_under(&mut self, policy: &Arc<PolicyMetrics>) {
        self.policy = Some(Arc::clone(policy));
        self.outcome = Outcome::Pending;
        self.matched.clear();
        self.shadows = None;
        self.source = None;
    }

    /// Sets the rules that matched so far, at all stages, by their indices in the policy; each counts once.
    pub fn matched(&mut self, rules: impl IntoIterator<Item = u32>) {
        self.matched.clear();
        self.matched.extend(rules);
    }

    /// The policy lets the request pass the stage it is at; `rule` is the cause, `None` the policy's default.
    pub fn allowed(&mut self, rule: Option<u32>) {
        self.outcome = Outcome::Allowed { rule };
    }

    /// The request is refused at the stage it is at; `rule` is the cause, if it is one. `keep` says what the log may
    /// show of the URL.
    pub fn rejected(&mut self, reason: Reason, rule: Option<u32>, keep: Keep) {
        self.outcome = Outcome::Rejected { reason, rule };
        self.keep = keep;
    }

    /// Sets what stands in shadow says so far; `None` if nothing stands there.
    pub fn shadows(&mut self, notes: Option<Box<Notes>>) {
        self.shadows = notes;
    }

    /// What `Crawl-Shadow` says: the verdicts in shadow that differ from the live one. `None` if none does.
    pub fn shadow_words(&self) -> Option<String> {
        self.shadows
            .as_ref()?
            .words(self.changed()?, self.policy.as_ref())
    }

    /// What a shadow can have changed, after what became of the request.
    pub(super) fn changed(&self) -> Option<Change> {
        match self.outcome {
            Outcome::Pending => None,
            Outcome::Allowed { .. } => Some(Change::Refuses),
            Outcome::Rejected { .. } => Some(Change::Admits),
        }
    }

    /// The request stage has its verdict: ends the decision's duration.
    pub fn decided_at(&mut self, now: Instant) {
        self.times.decision = Micros::from(now.saturating_duration_since(self.began));
    }

    /// How long the request was held for politeness.
    pub fn held(&mut self, time: Duration) {
        self.times.held = Micros::from(time);
    }

    /// How long the name look-up took; not set when there was none.
    pub fn resolved_in(&mut self, time: Duration) {
        self.times.dns = Micros::from(time);
    }

    /// How long the new connection took; not set when an idle one was taken.
    pub fn connected_in(&mut self, time: Duration) {
        self.times.connect = Micros::from(time);
    }

    /// How long the TLS handshake with the origin took.
    pub fn tls_in(&mut self, time: Duration) {
        self.times.tls = Micros::from(time);
    }

    /// The address that the request goes to.
    pub fn address(&mut self, address: IpAddr) {
        self.address = Some(address);
    }

    /// The origin's response head is here, `ttfb` after the request was sent.
    ///
    /// Of the content type the log shows what rules see: type and subtype.
    pub fn origin_answered(
        &mut self,
        status: u16,
        content_type: Option<&HeaderValue>,
        ttfb: Duration,
    ) {
        let family = ContentFamily::of(content_type.map(HeaderValue::as_bytes));
        self.origin = Some((status, family));
        self.times.ttfb = Micros::from(ttfb);
        if self.books.log.is_on() {
            self.content_type = content_type.cloned();
        }
    }

    /// Sets what the policy's option `source` says; shown in the log.
    pub fn source(&mut self, source: &HeaderValue) {
        if self.books.log.is_on() {
            self.source = Some(source.clone());
        }
    }

    /// The exchange with the origin failed; `error` is an RFC 9209 type. Counted, and shown in the log.
    pub fn upstream_failed(&mut self, error: &'static str) {
        self.error = Some(error);
    }

    /// The tunnel is open: what follows is no answer that anybody waits for. It counts as open until the record ends.
    pub fn tunnel_opened(&mut self) {
        if self.flight == Flight::Counted {
            self.flight = Flight::Tunnel;
            self.books
                .metrics
                .counted()
                .iter()
                .for_each(|families| families.inflight.dec());
        }
    }

    /// The tunnel is looked into, and its requests have records of their own: this one is not counted, nor logged.
    pub fn forget(mut self) {
        self.tunnel_opened();
        self.flight = Flight::Forgotten;
    }

    /// The proxy closes the tunnel; `why` is shown in the log and is no failure of the origin.
    pub fn tunnel_closed(&mut self, why: &'static str) {
        self.closed = Some(why);
    }

    /// The status that is sent to the client, and who made the answer.
    pub fn answered(&mut self, status: u16, source: Source) {
        self.sent = Some((status, source));
    }

    /// Adds bytes that the client sent.
    pub fn add_up(&mut self, bytes: u64) {
        self.up += bytes;
    }

    /// The request has a body, whose bytes are counted here as they pass.
    pub fn uploads(&mut self, meter: Arc<AtomicU64>) {
        self.uploads = Some(meter);
    }

    pub(super) fn up(&self) -> u64 {
        self.up
            + self
                .uploads
                .as_ref()
                .map_or(0, |meter| meter.load(Ordering::Relaxed))
    }

    /// Adds bytes of the answer's body.
    pub fn add_down(&mut self, bytes: u64) {
        self.down += bytes;
    }

    /// The last byte of the answer was handed over, or the answer has no body; the drop that follows reads the clock.
    ///
    /// A record that is dropped without this, or [`Self::finish`], is that of a client that left, unless it carries
    /// an error. hyper does not poll a body behind its last byte when the length is known, nor at all when it is
    /// empty or the answer to HEAD: whoever owns the body tells by `is_end_stream`.
    pub fn complete(&mut self) {
        self.answer = Answer::Complete;
    }

    /// Ends the record at a time that is known: the answer is complete.
    pub fn finish(mut self, now: Instant) {
        self.ended = Some(now);
        self.complete();
    }
}

impl fmt::Debug for Record {
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
        assert!(size_of::<Record>() <= 416, "{}", size_of::<Record>());
    }
}
