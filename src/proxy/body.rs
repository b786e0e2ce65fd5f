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
use crate::pipeline::admission::HostSlot;
use crate::pipeline::permit::BodyTimeouts;
use crate::pipeline::response::ContentHash;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::document::{DocumentBody, OutgoingBody};
use super::head::timer::LazyTimer;
use super::pool::{ConnectionPool, OriginConnection};

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The sender closed, reset or broke the framing in the middle.
    Incomplete,
    /// The client that sent it is gone: it closed or reset its connection before the end of a request's body.
    ClientLeft,
    /// Nothing came for the length of `timeouts.body_idle`, or not all within `timeouts.request`.
    Idle,
    /// More came than is allowed.
    TooLarge,
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Incomplete => "the body broke off",
            Self::ClientLeft => "the client left",
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
            Self::ClientLeft => "http_request_error",
            Self::Idle => "connection_read_timeout",
            Self::TooLarge => "http_response_body_size",
        }
    }
}

/// The body of an answer. `G` goes with it to its end: the record of the request.
#[derive(Debug)]
pub struct ResponseBody<G> {
    content: BodyContent,
    observer: G,
}

#[derive(Debug)]
enum BodyContent {
    Full(Option<Bytes>),
    Streamed(Box<ResponseDownload>),
    Document(Box<DocumentBody>),
}

/// What a body tells the guard that travels with it.
pub trait BodyObserver {
    /// So many bytes were handed to the client.
    fn on_sent(&mut self, bytes: u64);
    /// The origin's body broke off.
    fn on_error(&mut self, error: BodyError);
    /// The SHA-256 of the whole of it, content codings undone; where that was asked for, before [`Self::ended`].
    fn on_content_hash(&mut self, hash: ContentHash);
    /// The last byte was handed to the client.
    fn on_end(&mut self);
}

impl<G: BodyObserver> ResponseBody<G> {
    /// A body that is all there.
    pub fn full(bytes: Bytes, observer: G) -> Self {
        Self::new(
            BodyContent::Full(Some(bytes).filter(|b| !b.is_empty())),
            observer,
        )
    }

    /// The body of an origin's answer.
    pub fn streamed(outgoing: OutgoingBody, observer: G) -> Self {
        let content = match outgoing {
            OutgoingBody::Streamed(download) => BodyContent::Streamed(download),
            OutgoingBody::Document(document) => BodyContent::Document(document),
        };
        Self::new(content, observer)
    }

    /// hyper asks nothing of a body that is over from the start.
    fn new(content: BodyContent, observer: G) -> Self {
        let mut body = Self { content, observer };
        if body.is_over() {
            body.finish();
        }
        body
    }

    /// Nothing comes any more: what was held for it goes back, and the guard hears of it.
    fn finish(&mut self) {
        match &mut self.content {
            BodyContent::Full(_) => {}
            BodyContent::Streamed(download) => download.release(),
            BodyContent::Document(document) => {
                if let Some(hash) = document.finish() {
                    self.observer.on_content_hash(hash);
                }
            }
        }
        self.observer.on_end();
    }

    fn is_over(&self) -> bool {
        match &self.content {
            BodyContent::Full(bytes) => bytes.is_none(),
            BodyContent::Streamed(download) => download.incoming.is_end_stream(),
            BodyContent::Document(document) => document.is_over(),
        }
    }
}

impl<G: BodyObserver + Unpin> HttpBody for ResponseBody<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let next = match &mut this.content {
            BodyContent::Full(bytes) => bytes.take().map(|b| Ok(Frame::data(b))),
            BodyContent::Streamed(download) => {
                ready!(download.poll_data(cx)).map(|r| r.map(Frame::data))
            }
            BodyContent::Document(document) => {
                ready!(document.poll_data(cx)).map(|r| r.map(Frame::data))
            }
        };
        match &next {
            Some(Ok(frame)) => this
                .observer
                .on_sent(frame.data_ref().map_or(0, |d| d.len() as u64)),
            Some(Err(error)) => this.observer.on_error(*error),
            None => {}
        }
        // hyper asks no more of a body that says it is over.
        let ended = next.is_none() || matches!(next, Some(Ok(_))) && this.is_over();
        if ended {
            this.finish();
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            BodyContent::Streamed(download) => download.incoming.size_hint(),
            BodyContent::Document(document) => document.size_hint(),
        }
    }
}

/// The body of an origin's answer, and the connection that it comes on.
///
/// Reading it drives the connection. At its end the connection goes back to the pool; dropped before, it is closed,
/// which is how an origin sees that the client has left.
#[derive(Debug)]
pub struct ResponseDownload {
    incoming: Incoming,
    connection: Option<Box<OriginConnection>>,
    pool_handle: PoolHandle,
    idle_timer: LazyTimer,
    total_timer: LazyTimer,
    /// Bytes that may still come; `max_body` for answers that tell no length.
    remaining: u64,
    /// Whether the connection may carry another answer.
    reuse: ConnectionReuse,
    /// The host's slot, given back with the last byte.
    slot: Option<HostSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionReuse {
    Allowed,
    Forbidden,
}

/// Where a connection goes back to.
#[derive(Clone, Debug)]
pub struct PoolHandle {
    /// The pool.
    pub pool: Arc<ConnectionPool>,
    /// For how long it has been idle is counted from here.
    pub clock: Clock,
}

/// How long a body may take.
#[derive(Clone, Copy, Debug)]
pub struct BodyTimeLimits {
    /// The longest time between two of its parts.
    pub idle: Duration,
    /// The longest for all of them.
    pub total: Duration,
}

impl BodyTimeLimits {
    /// With what the policy says in place of the configuration.
    pub fn with_overrides(self, timeouts: BodyTimeouts) -> Self {
        Self {
            idle: timeouts.idle.unwrap_or(self.idle),
            total: timeouts.whole.unwrap_or(self.total),
        }
    }
}

impl ResponseDownload {
    /// The body of an answer that came on this connection.
    pub fn new(
        incoming: Incoming,
        connection: Box<OriginConnection>,
        slot: HostSlot,
        pool_handle: PoolHandle,
        times: BodyTimeLimits,
    ) -> Self {
        let (idle, whole) = (LazyTimer::new(times.idle), LazyTimer::new(times.total));
        let (link, slot) = (Some(connection), Some(slot));
        Self {
            incoming,
            connection: link,
            pool_handle,
            idle_timer: idle,
            total_timer: whole,
            remaining: u64::MAX,
            reuse: ConnectionReuse::Allowed,
            slot,
        }
    }

    /// Breaks off once more than this many bytes have come.
    pub fn set_limit(&mut self, bytes: u64) {
        self.remaining = bytes;
    }

    /// Takes as long as the policy says; to be told before the first byte is read.
    pub fn set_timeouts(&mut self, timeouts: BodyTimeouts) {
        if let Some(idle) = timeouts.idle {
            self.idle_timer.set_length(idle);
        }
        if let Some(whole) = timeouts.whole {
            self.total_timer.set_length(whole);
        }
    }

    /// The connection carries no other answer behind this one.
    pub fn forbid_reuse(&mut self) {
        self.reuse = ConnectionReuse::Forbidden;
    }

    /// The next part, for a body that is not passed on.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.incoming.is_end_stream() {
            self.release();
            return None;
        }
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Whether all of it has come.
    pub(crate) fn is_over(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// How much of it is still to come, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match self.poll_incoming(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.idle_timer.record_progress();
                    // Trailers are left out: nobody has cleaned them, and crawlers ask for none.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    if let Some(slot) = &mut self.slot {
                        slot.record_received(data.len());
                    }
                    let data = self.check_limit(data);
                    // hyper asks no more of a body that says it is over.
                    if self.incoming.is_end_stream() {
                        self.release();
                    }
                    return Poll::Ready(Some(data));
                }
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Some(Err(self.origin_failed(BodyError::Incomplete))));
                }
                Poll::Ready(None) => {
                    self.release();
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    // A whole body may take too long because its reader is slow; silence is the origin's.
                    if self.total_timer.poll_once(cx).is_ready() {
                        return Poll::Ready(Some(Err(self.close(BodyError::Idle))));
                    }
                    ready!(self.idle_timer.poll(cx));
                    return Poll::Ready(Some(Err(self.origin_failed(BodyError::Idle))));
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
        if let Some(link) = &mut self.connection
            && link.poll_drive(cx).is_ready()
        {
            self.connection = None;
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn check_limit(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        match self.remaining.checked_sub(data.len() as u64) {
            Some(left) => {
                self.remaining = left;
                Ok(data)
            }
            None => Err(self.close(BodyError::TooLarge)),
        }
    }

    /// The origin has failed in the middle.
    fn origin_failed(&mut self, error: BodyError) -> BodyError {
        if let Some(slot) = &mut self.slot {
            slot.record_failure();
        }
        self.close(error)
    }

    fn close(&mut self, error: BodyError) -> BodyError {
        self.connection = None;
        self.slot = None;
        error
    }

    /// Behind the last byte, once or more. The connection may need one more turn to see that the message is over.
    pub(crate) fn release(&mut self) {
        self.slot = None;
        let Some(mut link) = self.connection.take() else {
            return;
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if self.reuse == ConnectionReuse::Forbidden {
            return;
        }
        if link.poll_drive(&mut cx).is_pending() && link.sender.is_ready() {
            self.pool_handle
                .pool
                .put(link, self.pool_handle.clock.now());
        }
    }
}

/// The body of a request on its way to the origin.
#[derive(Debug)]
pub enum RequestUpload {
    /// None.
    Empty,
    /// What the client sends, up to a limit.
    Streamed(Box<UploadStream>),
}

/// A client's body, counted and timed.
#[derive(Debug)]
pub struct UploadStream {
    incoming: Incoming,
    remaining: u64,
    idle_timer: LazyTimer,
    total_timer: LazyTimer,
    watch: UploadWatch,
}

/// Tells whose turn it is while a body is on its way: an origin's time to answer runs only when it is the origin's.
#[derive(Clone, Debug, Default)]
pub struct UploadWatch {
    state: Arc<AtomicU8>,
    bytes: Arc<AtomicU64>,
}

/// What became of an upload since it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadProgress {
    /// Nothing: the origin takes no more, or has it all.
    Nothing,
    /// Some of it.
    Advanced,
    /// The client is waited for.
    AwaitingClient,
}

impl UploadWatch {
    /// Looks.
    pub fn take_progress(&self) -> UploadProgress {
        let moved = UploadProgress::Advanced as u8;
        match self
            .state
            .compare_exchange(moved, UploadProgress::Nothing as u8, Relaxed, Relaxed)
        {
            Ok(_) => UploadProgress::Advanced,
            Err(state) if state == UploadProgress::AwaitingClient as u8 => {
                UploadProgress::AwaitingClient
            }
            Err(_) => UploadProgress::Nothing,
        }
    }

    fn set_progress(&self, progress: UploadProgress) {
        self.state.store(progress as u8, Relaxed);
    }

    /// Counts the bytes that have gone on to the origin.
    pub fn byte_counter(&self) -> &Arc<AtomicU64> {
        &self.bytes
    }
}

impl RequestUpload {
    /// What the client sends: at most `limit` bytes.
    pub fn new(incoming: Incoming, limit: u64, times: BodyTimeLimits) -> Self {
        if incoming.is_end_stream() {
            return Self::Empty;
        }
        let (idle, whole) = (LazyTimer::new(times.idle), LazyTimer::new(times.total));
        let watch = UploadWatch::default();
        Self::Streamed(Box::new(UploadStream {
            incoming,
            remaining: limit,
            idle_timer: idle,
            total_timer: whole,
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

impl HttpBody for RequestUpload {
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
                uploading.watch.set_progress(if next.is_pending() {
                    UploadProgress::AwaitingClient
                } else {
                    UploadProgress::Advanced
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

impl UploadStream {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.idle_timer.record_progress();
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    let Some(left) = self.remaining.checked_sub(data.len() as u64) else {
                        return Poll::Ready(Some(Err(BodyError::TooLarge)));
                    };
                    self.remaining = left;
                    self.watch.bytes.fetch_add(data.len() as u64, Relaxed);
                    return Poll::Ready(Some(Ok(data)));
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(upload_error(&error))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    if self.total_timer.poll_once(cx).is_pending() {
                        ready!(self.idle_timer.poll(cx));
                    }
                    return Poll::Ready(Some(Err(BodyError::Idle)));
                }
            }
        }
    }
}

/// A client that is gone is told from one that breaks the framing: the first gets no answer, the second a 400.
fn upload_error(error: &hyper::Error) -> BodyError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<std::io::Error>());
    match source.map(std::io::Error::kind) {
        Some(UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe) => {
            BodyError::ClientLeft
        }
        Some(_) | None => BodyError::Incomplete,
    }
}
