//! The exchange with an origin: one request out, one answer back, on a pooled or a new connection.
//!
//! The connection is driven by the task of the request itself. It takes a permit, so nothing that was not judged can
//! be sent, and the target of the permit is what is written to the wire.

mod error;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::clock::{Clock, Lapse};
use crate::gate::hold::{Again, Slot};
use crate::gate::permit::{Manner, Permit};
use crate::vocab::target::{Scheme, UrlTarget};
use crate::vocab::verify::Verify;

use super::body::{BodyError, BodyTimes, Download, Home, Upload, UploadWatch, Uploaded};
use super::dead::Dead;
use super::destination::Vetted;
use super::dial::{DialLimits, dial};
use super::head::timer::LazyTimer;
use super::origin_tls::{Hello, OriginStream, OriginTcp, OriginTls};
use super::pool::{Link, Place, Pool, PoolLimits, Reused};

pub use error::UpstreamError;

/// A connection that has been idle for less than this is hardly ever closed by the origin just as it is used.
const SURELY_ALIVE: Duration = Duration::from_millis(500);

/// A request that has to be sent once more waits for its turn no longer than this.
const REPEATED_WITHIN: Duration = Duration::from_secs(20);

/// Limits and time-outs towards origins.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamLimits {
    /// Connecting.
    pub dial: DialLimits,
    /// The pool.
    pub pool: PoolLimits,
    /// From the request's last byte, or the last that the origin took, to the end of the answer's head.
    pub response_head: Duration,
    /// Between two parts of a body.
    pub body_idle: Duration,
    /// A whole body.
    pub body: Duration,
    /// Bytes of an answer's head.
    pub head: usize,
    /// Fields of an answer's head.
    pub fields: usize,
}

/// Sends requests to origins.
#[derive(Debug)]
pub struct Upstream {
    pool: Arc<Pool>,
    tls: OriginTls,
    limits: UpstreamLimits,
    clock: Clock,
    builder: http1::Builder,
    dead: Arc<Dead>,
}

/// A request that is ready to be sent, but for where.
#[derive(Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Cleaned fields, `Host` of the permit's target among them.
    pub headers: HeaderMap,
    /// The body.
    pub body: Upload,
    /// The path and query as received, if they are the canonical ones.
    pub uri: Option<Uri>,
}

/// What an origin answered, and how long it took.
#[derive(Debug)]
pub struct Answered {
    /// The answer.
    pub response: Response<Box<Download>>,
    /// How long connecting took; none on a pooled connection.
    pub connect: Option<Lapse>,
    /// How long the TLS handshake took; none on a pooled connection, and none without TLS.
    pub tls: Option<Lapse>,
    /// When the request could be sent: at once on a pooled connection.
    pub sent: Instant,
    /// The address that answered.
    pub address: SocketAddr,
}

impl Upstream {
    /// Sends requests within these limits, to `https` origins by this TLS, and tells what refuses connections.
    pub fn new(limits: UpstreamLimits, tls: OriginTls, clock: Clock, dead: Arc<Dead>) -> Self {
        let mut builder = http1::Builder::new();
        // Origins send such things; each is read in the one way that cannot move the end of the message.
        builder
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .max_headers(limits.fields)
            .max_header_size(limits.head);
        Self {
            pool: Arc::new(Pool::new(limits.pool)),
            tls,
            limits,
            clock,
            builder,
            dead,
        }
    }

    /// The idle connections.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Sends a request where its permit says.
    ///
    /// A pooled connection that dies before the request is written, or before any answer to a request that may be
    /// repeated, costs one retry on a new connection, never a second.
    ///
    /// # Errors
    /// If no answer's head arrives.
    pub fn send(
        &self,
        permit: Permit<Vetted>,
        mut call: Call,
        now: Instant,
    ) -> impl Future<Output = Result<Answered, UpstreamError>> + Send {
        // No `async fn`: that would keep the permit and the call beside what becomes of them.
        let (uri, watch) = (call.uri.take(), call.body.watch());
        let mut sending = self.sending(permit, watch.as_ref());
        let uri = uri.map_or_else(|| sending.target.path_and_query().parse(), Ok);
        // The canonical form holds no byte that a request line cannot.
        let request = uri.map(|uri| call.into_request(uri));
        let reused = self.pool.take(sending.place(), &sending.vetted, now);
        let known = reused.as_ref().zip(request.as_ref().ok());
        let spare = known.and_then(|(reused, request)| spare(request, reused.idle_for));
        async move {
            let Ok(request) = request else {
                return Err(UpstreamError::Upload(BodyError::Incomplete));
            };
            let Some(Reused { mut link, idle_for }) = reused else {
                return Box::pin(self.send_anew(sending, request, now)).await;
            };
            let wait = Wait {
                head: sending.head,
                since: now,
            };
            let answer = pin!(link.sender.try_send_request(request));
            match exchange(link, answer, watch, &sending.slot, wait, &self.clock).await {
                Ok((response, link)) => Ok(self.answered(response, link, sending.slot, now)),
                Err(Failed { error, unsent }) => {
                    let again = unsent.or(spare.filter(|_| error.may_repeat()));
                    let Some(again) = again else {
                        // An origin may close what was idle whenever it likes.
                        let stale = SURELY_ALIVE <= idle_for && error.may_repeat();
                        return Err(if stale {
                            error
                        } else {
                            blaming(&mut sending.slot, error)
                        });
                    };
                    Box::pin(self.send_again(sending, *again, error)).await
                }
            }
        }
    }

    fn sending(&self, permit: Permit<Vetted>, watch: Option<&UploadWatch>) -> Sending {
        let Manner { verify, timeouts } = permit.manner();
        let (target, vetted, mut slot) = permit.redeem();
        if let Some(watch) = watch {
            slot.uploads(watch.bytes());
        }
        let verify = self.verify(&target, verify);
        let head = timeouts.response_head.unwrap_or(self.limits.response_head);
        Sending {
            target,
            vetted,
            slot,
            verify,
            head,
            dial: self.limits.dial.with(timeouts),
        }
    }

    /// Once more, on a new connection, after `failed`.
    async fn send_again(
        &self,
        sending: Sending,
        request: Request<Upload>,
        failed: UpstreamError,
    ) -> Result<Answered, UpstreamError> {
        has_turn_again(&sending.slot, failed).await?;
        self.send_anew(sending, request, self.clock.now()).await
    }

    /// On a new connection.
    async fn send_anew(
        &self,
        mut sending: Sending,
        request: Request<Upload>,
        now: Instant,
    ) -> Result<Answered, UpstreamError> {
        let connected = self.connect(&sending, now).await;
        let New {
            mut link,
            connect,
            tls,
        } = connected.map_err(|error| blaming(&mut sending.slot, error))?;
        let wait = Wait {
            head: sending.head,
            since: self.clock.now(),
        };
        let watch = request.body().watch();
        let answer = pin!(link.sender.try_send_request(request));
        let exchanged = exchange(link, answer, watch, &sending.slot, wait, &self.clock).await;
        let (response, link) =
            exchanged.map_err(|failed| blaming(&mut sending.slot, failed.error))?;
        Ok(Answered {
            connect: Some(connect),
            tls,
            ..self.answered(response, link, sending.slot, wait.since)
        })
    }

    /// What is asked of the origin. Without TLS there is nothing to verify, so that all share their connections.
    fn verify(&self, target: &UrlTarget, asked: Verify) -> Verify {
        match target.scheme() {
            Scheme::Http => Verify::On,
            Scheme::Https => self.tls.verify(asked),
        }
    }

    async fn connect(&self, to: &Sending, began: Instant) -> Result<New, UpstreamError> {
        let dialled = self.dial(to).await?;
        let connected = self.clock.now();
        let (stream, address, tls) = match to.target.scheme() {
            Scheme::Http => (
                OriginStream::Http(TokioIo::new(OriginTcp::plain(dialled.stream))),
                dialled.address,
                None,
            ),
            Scheme::Https => {
                let (stream, address) = self.secure(to, dialled).await?;
                let lapse = Lapse::between(connected, self.clock.now());
                self.tls.stands(lapse.took);
                (stream, address, Some(lapse))
            }
        };
        let (sender, driver) = self
            .builder
            .handshake(stream)
            .await
            .map_err(UpstreamError::Protocol)?;
        let answer = LazyTimer::new(self.limits.response_head);
        let (base, verify) = (to.target.base().into(), to.verify);
        let link = Link {
            sender,
            driver,
            address,
            base,
            verify,
            answer,
        };
        Ok(New {
            link: Box::new(link),
            connect: Lapse::between(began, connected),
            tls,
        })
    }

    async fn dial(&self, to: &Sending) -> Result<Dialled, UpstreamError> {
        let dialled = dial(&to.vetted, to.dial).await;
        self.dead.note(to.vetted.addresses(), &dialled);
        let (stream, address) = dialled.map_err(UpstreamError::Dial)?;
        Ok(Dialled { stream, address })
    }

    /// TLS on a connection that stands. A failure that an old origin could have with a large hello costs one retry on
    /// another connection with a small one.
    async fn secure(
        &self,
        to: &Sending,
        dialled: Dialled,
    ) -> Result<(OriginStream, SocketAddr), UpstreamError> {
        let (target, verify) = (&to.target, to.verify);
        let hello = self.tls.hello(target.base());
        let failed = match self
            .tls
            .handshake(dialled.stream, target, verify, hello)
            .await
        {
            Ok(stream) => return Ok((stream, dialled.address)),
            Err(error) => error,
        };
        if hello == Hello::Classic || !failed.may_be_of_the_hello() {
            return Err(UpstreamError::Tls(failed));
        }
        let Ok(again) = self.dial(to).await else {
            return Err(UpstreamError::Tls(failed));
        };
        let stream = self
            .tls
            .handshake(again.stream, target, verify, Hello::Classic)
            .await;
        Ok((stream.map_err(UpstreamError::Tls)?, again.address))
    }

    /// The answer's head is here: the slot learns from it, and goes with the body.
    fn answered(
        &self,
        response: Response<Incoming>,
        link: Box<Link>,
        mut slot: Slot,
        sent: Instant,
    ) -> Answered {
        slot.answered(response.status(), response.headers());
        let address = link.address;
        let home = Home {
            pool: Arc::clone(&self.pool),
            clock: self.clock.clone(),
        };
        let times = BodyTimes {
            idle: self.limits.body_idle,
            whole: self.limits.body,
        };
        let response = response.map(|body| Box::new(Download::new(body, link, slot, home, times)));
        Answered {
            response,
            connect: None,
            tls: None,
            sent,
            address,
        }
    }
}

/// Reads the head of an answer, driving the connection meanwhile, which sends the request.
async fn exchange(
    mut link: Box<Link>,
    mut answer: Pin<&mut impl Future<Output = Sent>>,
    watch: Option<UploadWatch>,
    slot: &Slot,
    wait: Wait,
    clock: &Clock,
) -> Result<(Response<Incoming>, Box<Link>), Failed> {
    let mut since = wait.since;
    let (driver, timer) = (&mut link.driver, &mut link.answer);
    timer.lasts(wait.head);
    let mut head = Head::Unsent;
    let answered = poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        // Its end shows in the answer, which is polled again behind it.
        let _ = Pin::new(&mut *driver).poll(cx);
        // The connection writes a head in the same turn in which it takes it.
        if std::mem::replace(&mut head, Head::Sent) == Head::Unsent {
            slot.sent();
        }
        match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => {
                match watch.as_ref().map_or(Uploaded::Nothing, UploadWatch::look) {
                    Uploaded::Nothing => {}
                    Uploaded::Some => since = clock.now(),
                    // The body has times of its own: between two parts, and for all of it.
                    Uploaded::Awaited => return Poll::Pending,
                }
                timer.poll_since(since, cx).map(|()| None)
            }
        }
    });
    match answered.await {
        Some(Ok(response)) => Ok((response, link)),
        Some(Err(mut failed)) => {
            let unsent = failed.take_message().map(Box::new);
            Err(Failed {
                error: failed.into_error().into(),
                unsent,
            })
        }
        None => Err(Failed {
            error: UpstreamError::Timeout,
            unsent: None,
        }),
    }
}

/// What comes of a request that was given to its connection.
type Sent = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

/// Holds a failure against the host, if it is the host's. A request that is dropped instead says nothing of it.
fn blaming(slot: &mut Slot, error: UpstreamError) -> UpstreamError {
    if error.is_of_the_origin() {
        slot.failed();
    }
    error
}

/// For how long an answer's head is waited for, and since when.
#[derive(Clone, Copy)]
struct Wait {
    head: Duration,
    since: Instant,
}

/// Where a request goes, and what it has of its permit.
struct Sending {
    target: UrlTarget,
    vetted: Vetted,
    slot: Slot,
    verify: Verify,
    /// For how long an answer's head is waited for.
    head: Duration,
    dial: DialLimits,
}

impl Sending {
    fn place(&self) -> Place<'_> {
        Place {
            base: self.target.base(),
            verify: self.verify,
        }
    }
}

/// A connection that was made for a request, and how long that took.
struct New {
    link: Box<Link>,
    connect: Lapse,
    tls: Option<Lapse>,
}

/// A connection before anything is sent on it.
struct Dialled {
    stream: TcpStream,
    address: SocketAddr,
}

impl Call {
    fn into_request(self, uri: Uri) -> Request<Upload> {
        let chunked =
            !self.body.is_empty() && http_body::Body::size_hint(&self.body).exact().is_none();
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers;
        if chunked {
            // Without it hyper sends a GET's body of unknown length not at all.
            request
                .headers_mut()
                .insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        request
    }
}

/// Waits until a request may be sent once more, on a connection of its own: the origin may have seen it, so it counts as
/// another. An error if that is not soon.
async fn has_turn_again(slot: &Slot, failed: UpstreamError) -> Result<(), UpstreamError> {
    let mut left = REPEATED_WITHIN;
    loop {
        match slot.again() {
            Again::Now => return Ok(()),
            Again::In(time) if time <= left => {
                left -= time;
                tokio::time::sleep(time).await;
            }
            Again::In(_) => return Err(failed),
            Again::Never => return Err(slot.rests().map_or(failed, UpstreamError::Resting)),
        }
    }
}

/// A copy to be sent again, where repeating is safe (RFC 9110 section 9.2.2) and the connection may be dead.
fn spare(request: &Request<Upload>, idle_for: Duration) -> Option<Box<Request<Upload>>> {
    let repeatable = request.method().is_idempotent() && request.body().is_empty();
    if !repeatable || idle_for < SURELY_ALIVE {
        return None;
    }
    let mut copy = Request::new(Upload::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(Box::new(copy))
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Unsent,
    Sent,
}

/// A failed exchange, with the request if none of it was written.
struct Failed {
    error: UpstreamError,
    unsent: Option<Box<Request<Upload>>>,
}
