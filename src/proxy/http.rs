//! One HTTP exchange: from hyper's request to the answer, and the record that goes with it.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request, response};
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;

use crate::gate::crawlers::Crawlers;
use crate::gate::hold::Hold;
use crate::gate::judged::{Asked, Judged};
use crate::gate::refusal::{Form, Refusal};
use crate::gate::request::{Outcome, Passage, Waits, Way};
use crate::gate::snapshot::{InForce, Snapshot};
use crate::gate::stage::identify::identify;
use crate::gate::{request as gate_request, response as gate_response};
use crate::metrics::labels::Source;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::{Record, Recorder};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::answer::{self, Asker, ProfileChoice};
use super::body::{Body, BodyError, BodyGuard, BodyTimes, Download, Upload};
use super::clean::{self, Framing, UnknownCoding, ViaName};
use super::connect::Seat;
use super::destination::Vetting;
use super::front::{self, Entry, Inside, Journey};
use super::head::ServiceOpen;
use super::intercept::Interceptor;
use super::robots::Robots;
use super::robots_tag;
use super::tunnel::Tunnels;
use super::upstream::{Answered, Call, Upstream, UpstreamError};

/// What a refused client's unread body may have, to be read and dropped so that its connection is kept.
const DISCARD: u64 = 64 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// The snapshot that the proxy judges under.
pub type PolicyInForce = Snapshot<Arc<PolicyMetrics>>;

/// Everything that an exchange needs.
#[derive(Debug)]
pub struct Exchange {
    /// The policy.
    pub in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    /// Where requests wait for their host's turn.
    pub hold: Arc<Hold>,
    /// Names, and which addresses may be dialled.
    pub vetting: Arc<Vetting>,
    /// Hosts' robots.txt.
    pub robots: Robots,
    /// Origins.
    pub upstream: Arc<Upstream>,
    /// Records.
    pub recorder: Recorder,
    /// This process in `Via`.
    pub via: ViaName,
    /// How crawlers are answered.
    pub profile: ProfileChoice,
    /// Tunnels.
    pub tunnels: Tunnels,
    /// What looks into them; none without a certificate authority.
    pub interceptor: Option<Arc<Interceptor>>,
    /// Who may ask, and how each is recognised.
    pub crawlers: Crawlers,
    /// Bytes of a request's body.
    pub request_body: u64,
    /// How long a request's body may take.
    pub body_times: BodyTimes,
}

/// What hyper gets: an answer, or the order to close without one.
pub type Reply = Result<Response<Body<Travelling>>, Hangup>;

/// The connection closes without an answer: what some crawlers take for "later".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hangup;

impl std::fmt::Display for Hangup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed without an answer")
    }
}

impl std::error::Error for Hangup {}

/// What goes with an answer's body to its last byte.
#[derive(Debug)]
pub struct Travelling {
    /// None behind a CONNECT that was granted: its record goes on with the tunnel.
    record: Option<Record>,
    _open: ServiceOpen,
}

impl BodyGuard for Travelling {
    fn sent(&mut self, bytes: u64) {
        self.record.iter_mut().for_each(|record| record.add_down(bytes));
    }

    fn broke(&mut self, error: BodyError) {
        self.record.iter_mut().for_each(|record| record.upstream_failed(error.as_str()));
    }

    fn ended(&mut self) {
        self.record.iter_mut().for_each(Record::complete);
    }
}

/// The head and body of an origin's answer that may be passed on.
type Passed = (response::Parts, Box<Download>);
pub(in crate::proxy) type Refused = Box<Refusal>;

impl Exchange {
    /// Answers one request. Its record ends with the last byte of the answer, or with the client.
    ///
    /// # Errors
    /// [`Hangup`], if this crawler is refused by closing its connection.
    pub async fn answer(&self, request: Request<Incoming>, open: ServiceOpen, seat: &Seat) -> Reply {
        self.recorder.log().room().await;
        let mut record = self.recorder.begin(self.recorder.clock().now(), request.method());
        let mut snapshot = self.in_force.load();
        let mut asker = Asker::of(request.headers());
        let method = request.method().clone();
        let passed = self.pass(request, seat, &mut asker, &mut snapshot, &mut record);
        let made = match unwinding(passed).await {
            Ok(made) => made,
            Err(Panicked) => Err(Box::new(Refusal::new(Reason::InternalError, record.stage()))),
        };
        match made {
            Ok(Made::Passed(passed)) => {
                let (mut parts, download) = passed;
                tell_shadows(&mut parts.headers, &asker, &record);
                record.answered(parts.status.as_u16(), Source::Origin);
                Ok(Response::from_parts(parts, Body::streamed(download, travelling(record, open))))
            }
            Ok(Made::Own(mut response)) => {
                tell_shadows(response.headers_mut(), &asker, &record);
                Ok(own(response, &method, record, open))
            }
            Ok(Made::Unheard) => Err(Hangup),
            Err(refusal) => match self.refused(&refusal, &asker, &snapshot, &mut record) {
                Some(response) => Ok(own(response, &method, record, open)),
                None => Err(Hangup),
            },
        }
    }

    /// The whole way of a request: each step may refuse it. The snapshot becomes the one that judged it last.
    async fn pass(
        &self,
        request: Request<Incoming>,
        seat: &Seat,
        asker: &mut Asker,
        snapshot: &mut Arc<PolicyInForce>,
        record: &mut Record,
    ) -> Result<Made, Refused> {
        let (parts, body) = request.into_parts();
        let who = match identify(&self.crawlers, &seat.caller, &parts.headers).await {
            Ok(who) => who,
            Err(refusal) => return Err(Box::pin(discarded(refusal, &parts, body)).await),
        };
        record.crawler(who.index);
        asker.is(&who.crawler);
        record.enter(Stage::Target);
        let (target, journey) = match self.enter(&parts, seat.inside()) {
            Ok(Entry { target, journey }) => (target, journey),
            Err(refusal) => return Err(Box::pin(discarded(refusal, &parts, body)).await),
        };
        record.target(&target);
        if let Some(closed) = seat.inside().and_then(Inside::closed) {
            closed.told();
            *snapshot = Arc::clone(&closed.under);
            record.judged_under(&snapshot.counters);
            return Err(Box::pin(discarded(closed.refusal.clone(), &parts, body)).await);
        }
        let asked = Asked::new(target, who.crawler, &parts);
        let profile = || asker.manner(self.profile).profile;
        let waits = Waits { hold: &self.hold, profile: &profile };
        let way = Way { destinations: &*self.vetting, robots: &self.robots, in_force: &self.in_force, waits };
        let Passage { outcome, mut judged, held } =
            gate_request::request(asked, Arc::clone(snapshot), &way).await;
        note(record, &judged);
        if let Some(time) = judged.found_in {
            record.resolved_in(time);
        }
        let decided = decided(record, held);
        if !Arc::ptr_eq(snapshot, &judged.snapshot) {
            *snapshot = Arc::clone(&judged.snapshot);
        }
        let permit = match outcome {
            Outcome::Forward(_) if journey == Journey::EndsHere => return Ok(Made::Own(options())),
            Outcome::Forward(permit) => permit,
            Outcome::Robots(known) => return Ok(Made::Own(answer::known_robots_txt(&known))),
            Outcome::Answer(refusal) => return Err(Box::pin(discarded(refusal, &parts, body)).await),
        };
        let call = self.call(parts, body, &judged);
        if let Some(watch) = call.body.watch() {
            record.uploads(Arc::clone(watch.bytes()));
        }
        record.enter(Stage::Upstream);
        let answer = match self.send(permit, call, decided, record).await {
            Err(error) if error.client_left() => return Ok(Made::Unheard),
            answer => answer.map_err(Refusal::from),
        };
        let answer = answer.map_err(|refusal| Refusal { keep: judged.keep(refusal.stage), ..refusal })?;
        let (mut head, body) = self.judge_answer(answer, asker, &mut judged, record)?;
        if let Some(held) = held {
            answer::tell_held(&mut head.headers, held);
        }
        Ok(Made::Passed((head, body)))
    }

    fn enter(&self, parts: &request::Parts, inside: Option<&Inside>) -> Result<Entry, Refused> {
        let entry = front::enter(parts, &self.via, inside)?;
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.request_body) {
            return Err(Box::new(too_large()));
        }
        Ok(entry)
    }

    /// A client's request as the origin gets it.
    fn call(&self, mut parts: request::Parts, body: Incoming, judged: &Judged<Arc<PolicyMetrics>>) -> Call {
        let target = &judged.asked.target;
        front::count_forward(&parts.method, &mut parts.headers);
        clean::request(&mut parts.headers, target.authority(), parts.version, &self.via);
        judged.effects().change_request(&mut parts.headers);
        let received = parts.uri.into_parts().path_and_query;
        let uri = received.filter(|p| p.as_str() == target.path_and_query()).map(Into::into);
        let body = Upload::new(body, self.request_body, self.body_times.with(judged.body_timeouts()));
        Call { method: parts.method, headers: parts.headers, body, uri }
    }

    async fn send(
        &self,
        permit: crate::gate::permit::Permit<super::destination::Vetted>,
        call: Call,
        began: Instant,
        record: &mut Record,
    ) -> Result<Response<Box<Download>>, UpstreamError> {
        let answered = self.upstream.send(permit, call, began).await;
        let Answered { response, connect, tls, address } = answered.inspect_err(|error| {
            if !error.client_left() {
                record.upstream_failed(error.as_str());
            }
        })?;
        record.address(address.ip());
        if let Some(connect) = connect {
            record.connected_in(connect);
        }
        if let Some(tls) = tls {
            record.tls_in(tls);
        }
        let ttfb = record.clock().now().saturating_duration_since(began);
        record.origin_answered(response.status().as_u16(), response.headers().get(CONTENT_TYPE), ttfb);
        Ok(response)
    }

    /// The response stage, and the head as the client gets it.
    fn judge_answer(
        &self,
        response: Response<Box<Download>>,
        asker: &Asker,
        judged: &mut Judged<Arc<PolicyMetrics>>,
        record: &mut Record,
    ) -> Result<Passed, Refused> {
        let (mut parts, mut download) = response.into_parts();
        match clean::settle_framing(&mut parts.headers) {
            Ok(_) if parts.status.is_informational() => return Err(unreadable()),
            Ok(Framing::Plain) => {}
            Ok(Framing::Doubtful) => download.end_with_it(),
            Err(UnknownCoding) => return Err(unreadable()),
        }
        record.enter(Stage::Response);
        let verdict = gate_response::response(judged, &parts);
        note(record, judged);
        // Refused: the connection is dropped with the body, of which no byte was passed on.
        verdict?;
        // As the rules on sizes: an error page is passed on.
        if let Some(most) = judged.max_body().filter(|_| parts.status.is_success()) {
            download.limit(most);
        }
        download.lasts(judged.body_timeouts());
        clean::response(&mut parts.headers, parts.status, parts.version, &self.via, asker.conditional());
        judged.effects().describe_answer(&mut parts.headers);
        if let Some(tag) = judged.effects().robots_tag() {
            robots_tag::merge(&mut parts.headers, tag);
        }
        parts.version = http::Version::HTTP_11;
        Ok((parts, download))
    }

    /// The answer to a refused request; none for a crawler that is hung up on.
    pub(in crate::proxy) fn refused(
        &self,
        refusal: &Refusal,
        asker: &Asker,
        snapshot: &PolicyInForce,
        record: &mut Record,
    ) -> Option<Response<Bytes>> {
        record.enter(refusal.stage);
        record.rejected(refusal.reason, refusal.cause.map(|rule| rule.0), refusal.keep);
        let decision = record.id().text();
        let in_force = answer::InForce { name: snapshot.policy.name(), revision: snapshot.policy.revision() };
        let mut response = match refusal.form {
            Form::Problem => answer::refuse(refusal, asker.manner(self.profile), in_force, &decision),
            Form::RobotsTxt => Some(answer::robots_txt(refusal, in_force, &decision)),
        }?;
        tell_shadows(response.headers_mut(), asker, record);
        Some(response)
    }
}

/// What became of a request that was not refused.
enum Made {
    /// The origin's answer.
    Passed(Passed),
    /// One of our own.
    Own(Response<Bytes>),
    /// None: the client left in the middle of its request.
    Unheard,
}

/// An answer of ours on its way. One to HEAD keeps the length of its body and loses the body; behind one to CONNECT
/// the connection closes, since what follows may be another protocol's bytes (RFC 9931).
pub(in crate::proxy) fn own(
    mut response: Response<Bytes>,
    method: &Method,
    mut record: Record,
    open: ServiceOpen,
) -> Response<Body<Travelling>> {
    record.answered(response.status().as_u16(), Source::Proxy);
    if *method == Method::CONNECT {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let head = *method == Method::HEAD;
    response.map(|bytes| Body::full(if head { Bytes::new() } else { bytes }, travelling(record, open)))
}

/// The answer to a CONNECT that was granted.
pub(in crate::proxy) fn established(open: ServiceOpen) -> Response<Body<Travelling>> {
    let mut response = Response::new(Body::full(Bytes::new(), Travelling { record: None, _open: open }));
    response.extensions_mut().insert(ReasonPhrase::from_static(b"Connection established"));
    response
}

fn travelling(record: Record, open: ServiceOpen) -> Travelling {
    Travelling { record: Some(record), _open: open }
}

/// Tells the record that it is decided; what it was held is no part of that. The time.
pub(super) fn decided(record: &mut Record, held: Option<Duration>) -> Instant {
    let now = record.clock().now();
    record.decided_at(held.and_then(|held| now.checked_sub(held)).unwrap_or(now));
    if let Some(held) = held {
        record.held(held);
    }
    now
}

/// Tells the record what the policy has done so far.
fn note(record: &mut Record, judged: &Judged<Arc<PolicyMetrics>>) {
    record.judged_under(&judged.snapshot.counters);
    record.matched(judged.matched().iter().map(|rule| rule.0));
    record.allowed(judged.cause().map(|rule| rule.0));
    record.shadows(judged.shadow_notes());
    if let Some(source) = judged.effects().source() {
        record.source(source);
    }
}

/// `Crawl-Shadow`, for crawlers that asked for a trace and may have one.
fn tell_shadows(headers: &mut HeaderMap, asker: &Asker, record: &Record) {
    if asker.traces()
        && let Some(words) = record.shadow_words()
    {
        answer::tell_shadows(headers, &words);
    }
}

/// RFC 9110 section 9.3.7: OPTIONS that goes no further is answered with what the proxy itself can do.
fn options() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static(answer::ALLOWED));
    response
}

fn unreadable() -> Refused {
    Box::new(Refusal::new(Reason::UpstreamProtocol, Stage::Upstream))
}

fn too_large() -> Refusal {
    Refusal::new(Reason::RequestTooLarge, Stage::Target)
        .with_detail("the request's body is larger than the limit")
}

/// Reads and drops a small body of a refused request, so that its connection can be kept; hyper closes it otherwise.
///
/// Not for a client that waits to be told to send it: it is told the refusal.
async fn discarded(refusal: impl Into<Refused>, parts: &request::Parts, mut body: Incoming) -> Refused {
    let small = body.size_hint().exact().is_none_or(|length| length <= DISCARD);
    let unasked = !parts.headers.contains_key(EXPECT);
    if small && unasked && !body.is_end_stream() {
        let mut left = DISCARD;
        let read = poll_fn(|cx| {
            loop {
                match std::task::ready!(pin!(&mut body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                        let Some(rest) = left.checked_sub(length) else { return Poll::Ready(()) };
                        left = rest;
                    }
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
        });
        let _ = tokio::time::timeout(DISCARD_TIME, read).await;
    }
    refusal.into()
}

/// A panic of the wrapped future.
pub(in crate::proxy) struct Panicked;

/// Runs a future so that a panic in it ends only it; the panic hook has counted it by then.
pub(in crate::proxy) async fn unwinding<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

/// The answer to a head that never became a request, as bytes; also to connections that find no room.
pub fn bare_refusal(exchange: &Exchange, refusal: &Refusal) -> Bytes {
    let mut record = exchange.recorder.begin(exchange.recorder.clock().now(), &Method::GET);
    record.enter(refusal.stage);
    record.rejected(refusal.reason, None, refusal.keep);
    let snapshot = exchange.in_force.load();
    let in_force = answer::InForce { name: snapshot.policy.name(), revision: snapshot.policy.revision() };
    let asker = Asker::of(&HeaderMap::new());
    let decision = record.id().text();
    let Some(response) = answer::refuse(refusal, asker.manner(exchange.profile), in_force, &decision) else {
        return Bytes::new();
    };
    record.answered(response.status().as_u16(), Source::Proxy);
    record.finish(exchange.recorder.clock().now());
    written(&response)
}

/// An answer as HTTP/1.1 bytes; the connection closes behind it.
fn written(response: &Response<Bytes>) -> Bytes {
    let status: StatusCode = response.status();
    let phrase = status.canonical_reason().unwrap_or("Refused");
    let mut bytes = format!("HTTP/1.1 {} {phrase}\r\n", status.as_u16()).into_bytes();
    for (name, value) in response.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"connection: close\r\n\r\n");
    bytes.extend_from_slice(response.body());
    bytes.into()
}
