//! The record of one request: a guard that is filled on the way and counted and logged exactly once, when it ends.
//!
//! It is begun when a request's head is known and travels with the request into the body of its answer. Whatever
//! ends it (the last byte, a client that left, a panic) drops it, and the drop does the counting, in
//! `flush.rs`. Nothing is decided here, and no setter takes a lock, allocates or reads a clock.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method};
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::{HostTarget, UrlTarget};

use super::content::ContentFamily;
use super::labels::Source;
use super::log::Log;
use super::policy::PolicyMetrics;
use super::repeat::Repeats;
use super::shadow::{Change, Notes};
use super::{CrawlerIndex, Metrics};

/// Begins records, and is where they end: the metrics and the decision log of one proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder(pub(super) Arc<Books>);

#[derive(Debug)]
pub(super) struct Books {
    pub(super) metrics: Metrics,
    pub(super) log: Log,
    pub(super) clock: Clock,
    pub(super) repeats: Repeats,
    instance: u32,
    requests: AtomicU64,
}

impl Recorder {
    /// A recorder with a random instance prefix, so that decision ids of two runs differ.
    pub fn new(metrics: Metrics, log: Log, clock: Clock) -> Self {
        let repeats = Repeats::new(clock.now());
        let instance = RandomState::new().hash_one("instance") as u32;
        Self(Arc::new(Books { metrics, log, clock, repeats, instance, requests: AtomicU64::new(0) }))
    }

    /// Begins the record of a request whose head was complete at `began`.
    pub fn begin(&self, began: Instant, method: &Method) -> Record {
        self.0.metrics.families().inflight.inc();
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed);
        Record {
            books: Arc::clone(&self.0),
            number,
            began,
            ended: None,
            answer: Answer::Partial,
            method: method.clone(),
            crawler: CrawlerIndex::ANONYMOUS,
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
        }
    }

    /// The instance prefix, 8 hex digits: what tells this process from others in decision ids and in `Via`.
    pub fn instance(&self) -> String {
        format!("{:08x}", self.0.instance)
    }

    /// The metrics that records are counted in.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The log that records are written to.
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// The clock that tells when a record ends.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }
}

/// What is kept of a rejected URL in the log: the option `record`, once `by-log` is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The URL and its host.
    Full,
    /// The host only; what `by-log` means for a rejection that is not logged.
    Host,
    /// Neither; the line is written all the same.
    None,
}

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
}

/// What a request is about.
#[derive(Debug)]
pub(super) enum Subject {
    Unknown,
    Url(UrlTarget),
    Host(HostTarget),
}

/// What was decided so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Pending,
    Allowed { rule: Option<u32> },
    Rejected { reason: Reason, rule: Option<u32> },
}

/// How much of the answer was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Partial,
    Complete,
}

/// Whether a request counts as under way. A tunnel does not, once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    Counted,
    Tunnel,
    /// It is no request of its own.
    Forgotten,
}

/// Durations of a request.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) decision: Micros,
    pub(super) held: Micros,
    pub(super) dns: Micros,
    pub(super) connect: Micros,
    pub(super) tls: Micros,
    pub(super) ttfb: Micros,
}

impl Record {
    /// The id for `Crawl-Decision`, the problem document and the log.
    pub fn id(&self) -> DecisionId {
        DecisionId { instance: self.books.instance, number: self.number }
    }

    /// The clock that tells when the record ends.
    pub fn clock(&self) -> &Clock {
        &self.books.clock
    }

    /// Sets who is asking.
    pub fn crawler(&mut self, crawler: CrawlerIndex) {
        self.crawler = crawler;
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
        self.shadows.as_ref()?.words(self.changed()?, self.policy.as_ref())
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
    pub fn origin_answered(&mut self, status: u16, content_type: Option<&HeaderValue>, ttfb: Duration) {
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
            self.books.metrics.families().inflight.dec();
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
        self.up + self.uploads.as_ref().map_or(0, |meter| meter.load(Ordering::Relaxed))
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
        write!(f, "Record({} at {}, {:?})", self.id(), self.stage.as_str(), self.outcome)
    }
}

/// The name of one decision: the instance's random prefix and a counter, `9f3c01ab-1f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecisionId {
    instance: u32,
    number: u64,
}

impl DecisionId {
    /// The id as text in place, for headers and documents, without an allocation.
    pub fn text(self) -> DecisionText {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = DecisionText { bytes: [0; 25], len: 0 };
        let digits = (64 - self.number.leading_zeros()).div_ceil(4).max(1);
        let instance = (0..8).rev().map(|place| self.instance >> (4 * place) & 15).map(|d| d as usize);
        let number = (0..digits).rev().map(|place| (self.number >> (4 * place) & 15) as usize);
        let hex = |digit: usize| HEX.get(digit).copied().unwrap_or(b'0');
        for byte in instance.map(hex).chain([b'-']).chain(number.map(hex)) {
            text.push(byte);
        }
        text
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// A [`DecisionId`] as text; hex digits and one hyphen.
#[derive(Clone, Copy, Debug)]
pub struct DecisionText {
    bytes: [u8; 25],
    len: u8,
}

impl DecisionText {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(usize::from(self.len)) {
            *place = byte;
            self.len += 1;
        }
    }
}

impl Deref for DecisionText {
    type Target = str;

    fn deref(&self) -> &str {
        let written = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(written).unwrap_or_default()
    }
}

/// A duration in whole microseconds, or none; over an hour is cut to 71 minutes. A quarter of `Option<Duration>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Micros(u32);

impl Micros {
    const NONE: u32 = u32::MAX;

    pub(super) fn seconds(self) -> Option<f64> {
        (self.0 != Self::NONE).then(|| f64::from(self.0) / 1e6)
    }

    pub(super) fn whole(self) -> Option<u32> {
        (self.0 != Self::NONE).then_some(self.0)
    }
}

impl Default for Micros {
    fn default() -> Self {
        Self(Self::NONE)
    }
}

impl From<Duration> for Micros {
    fn from(time: Duration) -> Self {
        Self(u32::try_from(time.as_micros()).unwrap_or(Self::NONE).min(Self::NONE - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_prefix_and_counter() {
        for (instance, number, text) in [
            (0x9f3c_01ab, 0, "9f3c01ab-0"),
            (0, 0x1f, "00000000-1f"),
            (u32::MAX, u64::MAX, "ffffffff-ffffffffffffffff"),
            (1, 0x10, "00000001-10"),
        ] {
            assert_eq!(DecisionId { instance, number }.to_string(), text);
        }
    }

    #[test]
    fn durations_are_cut_and_never_become_none() {
        assert_eq!(Micros::default().seconds(), None);
        assert_eq!(Micros::from(Duration::from_millis(1_250)).seconds(), Some(1.25));
        assert_eq!(Micros::from(Duration::MAX).whole(), Some(u32::MAX - 1));
    }

    #[test]
    fn a_record_is_small_enough_to_move() {
        assert!(size_of::<Record>() <= 384, "{}", size_of::<Record>());
    }
}
