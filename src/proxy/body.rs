//! Bodies on their way through the proxy: streamed, counted, timed, never copied.
//!
//! One enum a direction, so that nothing is boxed. A body that ends before it should is an error, never a clean end:
//! hyper then aborts the message, and the other side can tell.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::clock::Clock;
use crate::gate::hold::Slot;
use crate::gate::permit::OfBodies;
use crate::gate::response::ContentHash;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::document::{Document, Outgoing};
use super::head::timer::LazyTimer;
use super::pool::{Link, Pool};

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The sender closed, reset or broke the framing in the middle.
    Incomplete,
    /// The client that sent it is gone: it closed or reset its connection before the end of a request's body.
    Left,
    /// Nothing came for the length of `timeouts.body_idle`, or not all within `timeouts.request`.
    Idle,
    /// More came than is allowed.
    TooLarge,
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Incomplete => "the body broke off",
            Self::Left => "the client left",
            Self::Idle => "the body did not come in time",
            Self::TooLarge => "the body is larger than allowed",
        })
    }
}

impl std::error::Error for BodyError {}

impl BodyError {
    /// The error type of RFC 9209 section 2.3; the value of the `error` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incomplete => "http_response_incomplete",
            Self::Left => "http_request_error",
            Self::Idle => "connection_read_timeout",
            Self::TooLarge => "http_response_body_size",
        }
    }
}

/// The body of an answer. `G` goes with it to its end: the record of the request.
#[derive(Debug)]
pub struct Body<G> {
    content: Content,
    guard: G,
}

#[derive(Debug)]
enum Content {
    Full(Option<Bytes>),
    Streamed(Box<Download>),
    Document(Box<Document>),
}

/// What a body tells the guard that travels with it.
pub trait BodyGuard {
    /// So many bytes were handed to the client.
    fn sent(&mut self, bytes: u64);
    /// The origin's body broke off.
    fn broke(&mut self, error: BodyError);
    /// The SHA-256 of the whole of it, content codings undone; where that was asked for, before [`Self::ended`].
    fn content(&mut self, hash: ContentHash);
    /// The last byte was handed to the client.
    fn ended(&mut self);
}

impl<G: BodyGuard> Body<G> {
    /// A body that is all there.
    pub fn full(bytes: Bytes, guard: G) -> Self {
        Self::new(Content::Full(Some(bytes).filter(|b| !b.is_empty())), guard)
    }

    /// The body of an origin's answer.
    pub fn streamed(outgoing: Outgoing, guard: G) -> Self {
        let content = match outgoing {
            Outgoing::Plain(download) => Content::Streamed(download),
            Outgoing::Document(document) => Content::Document(document),
        };
        Self::new(content, guard)
    }

    /// hyper asks nothing of a body that is over from the start.
    fn new(content: Content, guard: G) -> Self {
        let mut body = Self { content, guard };
        if body.is_over() {
            body.end();
        }
        body
    }

    /// Nothing comes any more: what was held for it goes back, and the guard hears of it.
    fn end(&mut self) {
        match &mut self.content {
            Content::Full(_) => {}
            Content::Streamed(download) => download.give_back(),
            Content::Document(document) => {
                if let Some(hash) = document.end() {
                    self.guard.content(hash);
                }
            }
        }
        self.guard.ended();
    }

    fn is_over(&self) -> bool {
        match &self.content {
            Content::Full(bytes) => bytes.is_none(),
            Content::Streamed(download) => download.incoming.is_end_stream(),
            Content::Document(document) => document.is_over(),
        }
    }
}

impl<G: BodyGuard + Unpin> HttpBody for Body<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let next = match &mut this.content {
            Content::Full(bytes) => bytes.take().map(|b| Ok(Frame::data(b))),
            Content::Streamed(download) => {
                ready!(download.poll_data(cx)).map(|r| r.map(Frame::data))
            }
            Content::Document(document) => {
                ready!(document.poll_data(cx)).map(|r| r.map(Frame::data))
            }
        };
        match &next {
            Some(Ok(frame)) => this
                .guard
                .sent(frame.data_ref().map_or(0, |d| d.len() as u64)),
            Some(Err(error)) => this.guard.broke(*error),
            None => {}
        }
        // hyper asks no more of a body that says it is over.
        let ended = next.is_none() || matches!(next, Some(Ok(_))) && this.is_over();
        if ended {
            this.end();
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Content::Streamed(download) => download.incoming.size_hint(),
            Content::Document(document) => document.size_hint(),
        }
    }
}

/// The body of an origin's answer, and the connection that it comes on.
///
/// Reading it drives the connection. At its end the connection goes back to the pool; dropped before, it is closed,
/// which is how an origin sees that the client has left.
#[derive(Debug)]
pub struct Download {
    incoming: Incoming,
    link: Option<Box<Link>>,
    home: Home,
    idle: LazyTimer,
    whole: LazyTimer,
    /// Bytes that may still come; `max_body` for answers that tell no length.
    left: u64,
    /// Whether the connection may carry another answer.
    after: After,
    /// The host's slot, given back with the last byte.
    slot: Option<Slot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Reuse,
    Close,
}

/// Where a connection goes back to.
#[derive(Clone, Debug)]
pub struct Home {
    /// The pool.
    pub pool: Arc<Pool>,
    /// For how long it has been idle is counted from here.
    pub clock: Clock,
}

/// How long a body may take.
#[derive(Clone, Copy, Debug)]
pub struct BodyTimes {
    /// The longest time between two of its parts.
    pub idle: Duration,
    /// The longest for all of them.
    pub whole: Duration,
}

impl BodyTimes {
    /// With what the policy says in place of the configuration.
    pub fn with(self, timeouts: OfBodies) -> Self {
        Self {
            idle: timeouts.idle.unwrap_or(self.idle),
            whole: timeouts.whole.unwrap_or(self.whole),
        }
    }
}

impl Download {
    /// The body of an answer that came on this connection.
    pub fn new(
        incoming: Incoming,
        link: Box<Link>,
        slot: Slot,
        home: Home,
        times: BodyTimes,
    ) -> Self {
        let (idle, whole) = (LazyTimer::new(times.idle), LazyTimer::new(times.whole));
        let (link, slot) = (Some(link), Some(slot));
        Self {
            incoming,
            link,
            home,
            idle,
            whole,
            left: u64::MAX,
            after: After::Reuse,
            slot,
        }
    }

    /// Breaks off once more than this many bytes have come.
    pub fn limit(&mut self, bytes: u64) {
        self.left = bytes;
    }

    /// Takes as long as the policy says; to be told before the first byte is read.
    pub fn lasts(&mut self, timeouts: OfBodies) {
        if let Some(idle) = timeouts.idle {
            self.idle.lasts(idle);
        }
        if let Some(whole) = timeouts.whole {
            self.whole.lasts(whole);
        }
    }

    /// The connection carries no other answer behind this one.
    pub fn end_with_it(&mut self) {
        self.after = After::Close;
    }

    /// The next part, for a body that is not passed on.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.incoming.is_end_stream() {
            self.give_back();
            return None;
        }
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Whether all of it has come.
    pub(in crate::proxy) fn is_over(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// How much of it is still to come, as far as that is known.
    pub(in crate::proxy) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    pub(in crate::proxy) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match self.poll_incoming(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.idle.note();
                    // Trailers are left out: nobody has cleaned them, and crawlers ask for none.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    if let Some(slot) = &mut self.slot {
                        slot.received(data.len());
                    }
                    let data = self.within_limit(data);
                    // hyper asks no more of a body that says it is over.
                    if self.incoming.is_end_stream() {
                        self.give_back();
                    }
                    return Poll::Ready(Some(data));
                }
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Some(Err(self.broke(BodyError::Incomplete))));
                }
                Poll::Ready(None) => {
                    self.give_back();
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    // A whole body may take too long because its reader is slow; silence is the origin's.
                    if self.whole.poll_once(cx).is_ready() {
                        return Poll::Ready(Some(Err(self.close(BodyError::Idle))));
                    }
                    ready!(self.idle.poll(cx));
                    return Poll::Ready(Some(Err(self.broke(BodyError::Idle))));
                }
            }
        }
    }

    /// The body asks the connection for bytes, the connection hands them to the body: both are polled here.
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(next);
        }
        if let Some(link) = &mut self.link
            && link.poll_drive(cx).is_ready()
        {
            self.link = None;
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn within_limit(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        match self.left.checked_sub(data.len() as u64) {
            Some(left) => {
                self.left = left;
                Ok(data)
            }
            None => Err(self.close(BodyError::TooLarge)),
        }
    }

    /// The origin has failed in the middle.
    fn broke(&mut self, error: BodyError) -> BodyError {
        if let Some(slot) = &mut self.slot {
            slot.failed();
        }
        self.close(error)
    }

    fn close(&mut self, error: BodyError) -> BodyError {
        self.link = None;
        self.slot = None;
        error
    }

    /// Behind the last byte, once or more. The connection may need one more turn to see that the message is over.
    pub(in crate::proxy) fn give_back(&mut self) {
        self.slot = None;
        let Some(mut link) = self.link.take() else {
            return;
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if self.after == After::Close {
            return;
        }
        if link.poll_drive(&mut cx).is_pending() && link.sender.is_ready() {
            self.home.pool.put(link, self.home.clock.now());
        }
    }
}

/// The body of a request on its way to the origin.
#[derive(Debug)]
pub enum Upload {
    /// None.
    Empty,
    /// What the client sends, up to a limit.
    Streamed(Box<Uploading>),
}

/// A client's body, counted and timed.
#[derive(Debug)]
pub struct Uploading {
    incoming: Incoming,
    left: u64,
    idle: LazyTimer,
    whole: LazyTimer,
    watch: UploadWatch,
}

/// Tells whose turn it is while a body is on its way: an origin's time to answer runs only when it is the origin's.
#[derive(Clone, Debug, Default)]
pub struct UploadWatch {
    turn: Arc<AtomicU8>,
    bytes: Arc<AtomicU64>,
}

/// What became of an upload since it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uploaded {
    /// Nothing: the origin takes no more, or has it all.
    Nothing,
    /// Some of it.
    Some,
    /// The client is waited for.
    Awaited,
}

impl UploadWatch {
    /// Looks.
    pub fn look(&self) -> Uploaded {
        let moved = Uploaded::Some as u8;
        match self
            .turn
            .compare_exchange(moved, Uploaded::Nothing as u8, Relaxed, Relaxed)
        {
            Ok(_) => Uploaded::Some,
            Err(state) if state == Uploaded::Awaited as u8 => Uploaded::Awaited,
            Err(_) => Uploaded::Nothing,
        }
    }

    fn note(&self, uploaded: Uploaded) {
        self.turn.store(uploaded as u8, Relaxed);
    }

    /// Counts the bytes that have gone on to the origin.
    pub fn bytes(&self) -> &Arc<AtomicU64> {
        &self.bytes
    }
}

impl Upload {
    /// What the client sends: at most `limit` bytes.
    pub fn new(incoming: Incoming, limit: u64, times: BodyTimes) -> Self {
        if incoming.is_end_stream() {
            return Self::Empty;
        }
        let (idle, whole) = (LazyTimer::new(times.idle), LazyTimer::new(times.whole));
        let watch = UploadWatch::default();
        Self::Streamed(Box::new(Uploading {
            incoming,
            left: limit,
            idle,
            whole,
            watch,
        }))
    }

    /// Follows the body's way; nothing to follow if there is none.
    pub fn watch(&self) -> Option<UploadWatch> {
        match self {
            Self::Empty => None,
            Self::Streamed(uploading) => Some(uploading.watch.clone()),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Streamed(uploading) => {
                let next = uploading.poll_data(cx);
                uploading.watch.note(if next.is_pending() {
                    Uploaded::Awaited
                } else {
                    Uploaded::Some
                });
                next.map(|next| next.map(|r| r.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streamed(uploading) => uploading.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(uploading) => uploading.incoming.size_hint(),
        }
    }
}

impl Uploading {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.idle.note();
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    let Some(left) = self.left.checked_sub(data.len() as u64) else {
                        return Poll::Ready(Some(Err(BodyError::TooLarge)));
                    };
                    self.left = left;
                    self.watch.bytes.fetch_add(data.len() as u64, Relaxed);
                    return Poll::Ready(Some(Ok(data)));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(broken_off(&error)))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    if self.whole.poll_once(cx).is_pending() {
                        ready!(self.idle.poll(cx));
                    }
                    return Poll::Ready(Some(Err(BodyError::Idle)));
                }
            }
        }
    }
}

/// A client that is gone is told from one that breaks the framing: the first gets no answer, the second a 400.
fn broken_off(error: &hyper::Error) -> BodyError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<std::io::Error>());
    match source.map(std::io::Error::kind) {
        Some(UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe) => BodyError::Left,
        Some(_) | None => BodyError::Incomplete,
    }
}
