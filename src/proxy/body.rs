//! Bodies on their way through the proxy: streamed, counted and timed, never copied.
//!
//! There is one enum per direction, so that nothing is boxed. A body that ends too early is an
//! error, never a clean end: hyper then aborts the message, so the other side notices.

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

/// The cause of a failed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The sender closed or reset the connection, or violated the framing, in the middle.
    #[error("the body broke off")]
    Incomplete,
    /// The client closed or reset its connection before the end of the request body.
    #[error("the client left")]
    ClientLeft,
    /// No data arrived for `timeouts.body_idle`, or the body took longer than `timeouts.request`.
    #[error("the body did not arrive in time")]
    Idle,
    /// The body exceeds the limit.
    #[error("the body is larger than allowed")]
    TooLarge,
}
impl BodyError {
    /// Returns the error type of RFC 9209 section 2.3, which is the value of the `error` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incomplete => "http_response_incomplete",
            Self::ClientLeft => "http_request_error",
            Self::Idle => "connection_read_timeout",
            Self::TooLarge => "http_response_body_size",
        }
    }
}

/// The body of a response. The observer `G`, which holds the request's record, lives until its end.
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

/// Receives the events of a response body.
pub trait BodyObserver {
    /// Called after `bytes` bytes were handed to the client.
    fn on_sent(&mut self, bytes: u64);
    /// Called when the origin's body breaks off.
    fn on_error(&mut self, error: BodyError);
    /// Called with the SHA-256 of the decoded body before [`Self::on_end`], if a hash was
    /// requested.
    fn on_content_hash(&mut self, hash: ContentHash);
    /// Called after the last byte was handed to the client.
    fn on_end(&mut self);
}

impl<G: BodyObserver> ResponseBody<G> {
    /// Creates a body that is complete in memory.
    pub fn full(bytes: Bytes, observer: G) -> Self {
        Self::new(
            BodyContent::Full(Some(bytes).filter(|b| !b.is_empty())),
            observer,
        )
    }

    /// Creates the body of an origin's response.
    pub fn streamed(outgoing: OutgoingBody, observer: G) -> Self {
        let content = match outgoing {
            OutgoingBody::Streamed(download) => BodyContent::Streamed(download),
            OutgoingBody::Document(document) => BodyContent::Document(document),
        };
        Self::new(content, observer)
    }

    /// Finishes a body without data at once: hyper never polls it.
    fn new(content: BodyContent, observer: G) -> Self {
        let mut body = Self { content, observer };
        if body.is_over() {
            body.finish();
        }
        body
    }

    /// Releases the resources of a body after its end and notifies the observer.
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
        // hyper does not poll a body again that reports its end.
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

/// The body of an origin's response and the connection that it arrives on.
///
/// Reading the body drives the connection. At its end the connection returns to the pool. If it is
/// dropped before, the connection is closed, which shows the origin that the client has left.
#[derive(Debug)]
pub struct ResponseDownload {
    incoming: Incoming,
    connection: Option<Box<OriginConnection>>,
    pool_handle: PoolHandle,
    idle_timer: LazyTimer,
    total_timer: LazyTimer,
    /// The number of bytes that may still arrive; `max_body` for responses without a length.
    remaining: u64,
    reuse: ConnectionReuse,
    /// The host's slot, released with the last byte.
    slot: Option<HostSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionReuse {
    Allowed,
    Forbidden,
}

/// The pool that a connection returns to.
#[derive(Clone, Debug)]
pub struct PoolHandle {
    pub pool: Arc<ConnectionPool>,
    /// The clock that measures the idle time.
    pub clock: Clock,
}

#[derive(Clone, Copy, Debug)]
pub struct BodyTimeLimits {
    /// The longest time between two parts.
    pub idle: Duration,
    /// The longest time for the whole body.
    pub total: Duration,
}

impl BodyTimeLimits {
    /// Returns these limits with the policy's values in place of the configured ones.
    pub fn with_overrides(self, timeouts: BodyTimeouts) -> Self {
        Self {
            idle: timeouts.idle.unwrap_or(self.idle),
            total: timeouts.whole.unwrap_or(self.total),
        }
    }
}

impl ResponseDownload {
    /// Creates the body of a response that arrives on this connection.
    pub fn new(
        incoming: Incoming,
        connection: Box<OriginConnection>,
        slot: HostSlot,
        pool_handle: PoolHandle,
        times: BodyTimeLimits,
    ) -> Self {
        Self {
            incoming,
            connection: Some(connection),
            pool_handle,
            idle_timer: LazyTimer::new(times.idle),
            total_timer: LazyTimer::new(times.total),
            remaining: u64::MAX,
            reuse: ConnectionReuse::Allowed,
            slot: Some(slot),
        }
    }

    /// Limits the body: it fails after more than this number of bytes.
    pub fn set_limit(&mut self, bytes: u64) {
        self.remaining = bytes;
    }

    /// Sets the policy's timeouts. Must be called before the first byte is read.
    pub fn set_timeouts(&mut self, timeouts: BodyTimeouts) {
        if let Some(idle) = timeouts.idle {
            self.idle_timer.set_length(idle);
        }
        if let Some(whole) = timeouts.whole {
            self.total_timer.set_length(whole);
        }
    }

    /// Excludes the connection from reuse after this response.
    pub fn forbid_reuse(&mut self) {
        self.reuse = ConnectionReuse::Forbidden;
    }

    /// Returns the next part, for a body that is not forwarded.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.incoming.is_end_stream() {
            self.release();
            return None;
        }
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Returns `true` if the whole body has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Returns the size of the rest, as far as it is known.
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
                    // Trailers are dropped: their fields are not filtered, and crawlers do not ask
                    // for them.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    if let Some(slot) = &mut self.slot {
                        slot.record_received(data.len());
                    }
                    let data = self.check_limit(data);
                    // hyper does not poll a body again that reports its end.
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
                    // The total time can expire because the client reads slowly, which is not a
                    // failure of the origin. The idle time expires only if the origin is silent.
                    if self.total_timer.poll_once(cx).is_ready() {
                        return Poll::Ready(Some(Err(self.close(BodyError::Idle))));
                    }
                    ready!(self.idle_timer.poll(cx));
                    return Poll::Ready(Some(Err(self.origin_failed(BodyError::Idle))));
                }
            }
        }
    }

    /// Polls the body and the connection: the connection reads the bytes that the body waits for.
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(next);
        }
        if let Some(connection) = &mut self.connection
            && connection.poll_drive(cx).is_ready()
        {
            self.connection = None;
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn check_limit(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        match self.remaining.checked_sub(data.len() as u64) {
            Some(remaining) => {
                self.remaining = remaining;
                Ok(data)
            }
            None => Err(self.close(BodyError::TooLarge)),
        }
    }

    /// Records that the origin failed in the middle of the body.
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

    /// Releases the slot and the connection after the last byte; may be called more than once. One
    /// more poll of the connection may be needed before it recognizes the end of the message.
    pub(crate) fn release(&mut self) {
        self.slot = None;
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if self.reuse == ConnectionReuse::Forbidden {
            return;
        }
        if connection.poll_drive(&mut cx).is_pending() && connection.sender.is_ready() {
            self.pool_handle
                .pool
                .put(connection, self.pool_handle.clock.now());
        }
    }
}

/// The body of a request on its way to the origin.
#[derive(Debug)]
pub enum RequestUpload {
    /// No body.
    Empty,
    /// The client's body, up to a limit.
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

/// Reports which side an upload waits for: the origin's response timeout runs only while the upload
/// does not wait for the client.
#[derive(Clone, Debug, Default)]
pub struct UploadWatch {
    state: Arc<AtomicU8>,
    bytes: Arc<AtomicU64>,
}

/// The progress of an upload since the previous check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadProgress {
    /// No progress: the origin reads no more, or has the whole body.
    Nothing,
    /// Bytes were passed on.
    Advanced,
    /// The upload waits for the client.
    AwaitingClient,
}

impl UploadWatch {
    /// Returns the progress since the previous call.
    pub fn take_progress(&self) -> UploadProgress {
        let advanced = UploadProgress::Advanced as u8;
        match self
            .state
            .compare_exchange(advanced, UploadProgress::Nothing as u8, Relaxed, Relaxed)
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

    /// Returns the counter of bytes passed on to the origin.
    pub fn byte_counter(&self) -> &Arc<AtomicU64> {
        &self.bytes
    }
}

impl RequestUpload {
    /// Creates the upload of the client's body, of at most `limit` bytes.
    pub fn new(incoming: Incoming, limit: u64, times: BodyTimeLimits) -> Self {
        if incoming.is_end_stream() {
            return Self::Empty;
        }
        Self::Streamed(Box::new(UploadStream {
            incoming,
            remaining: limit,
            idle_timer: LazyTimer::new(times.idle),
            total_timer: LazyTimer::new(times.total),
            watch: UploadWatch::default(),
        }))
    }

    /// Returns a watch of the upload, unless there is no body.
    pub fn watch(&self) -> Option<UploadWatch> {
        match self {
            Self::Empty => None,
            Self::Streamed(upload) => Some(upload.watch.clone()),
        }
    }

    /// Returns `true` if there is no body.
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
            Self::Streamed(upload) => {
                let next = upload.poll_data(cx);
                upload.watch.set_progress(if next.is_pending() {
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
            Self::Streamed(upload) => upload.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(upload) => upload.incoming.size_hint(),
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
                    let Some(remaining) = self.remaining.checked_sub(data.len() as u64) else {
                        return Poll::Ready(Some(Err(BodyError::TooLarge)));
                    };
                    self.remaining = remaining;
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

/// Distinguishes a client that left, which gets no response, from one that violates the framing,
/// which gets a 400.
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
