//! Bodies on their way through the proxy: streamed, counted and timed, never copied.
//!
//! There is one enum per direction, so that nothing is boxed. A body that ends too early is an
//! error, never a clean end: hyper then aborts the message, so the other side notices.

mod client_body;
mod source;
mod upload;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::clock::Clock;
use crate::fleet::link::LinkDownload;
use crate::fleet::owners::OwnershipWatch;
use crate::pipeline::admission::HostSlot;
use crate::pipeline::permit::BodyTimeouts;
use crate::pipeline::response::ContentHash;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::document::{DocumentBody, OutgoingBody};
use super::head::timer::LazyTimer;
use super::pool::ConnectionPool;
use super::turn::{end_turn, is_turn_over};

pub(crate) use client_body::BodyDemand;
pub use client_body::{ClientBody, StreamBody};
pub use source::BodySource;
pub use upload::{RequestUpload, UploadProgress, UploadStream, UploadWatch};

/// The number of parts that are passed on in one turn of the task. Then the timers are polled and
/// other tasks run: a body that is never dry must not keep its thread to itself.
const PARTS_PER_TURN: u32 = 32;

/// The number of bytes after which a turn ends: reading and writing a megabyte takes about a
/// millisecond, most of it in the kernel.
const BYTES_PER_TURN: usize = 256 * 1024;

/// The number of parts without a pause after which the runtime may be late with timers, so that the
/// clock is read instead.
const BUSY_PARTS: u32 = 16;

/// The number of polls without data that may read as much as they can. The extensions and trailers
/// of chunks are shorter.
const MAX_EMPTY_POLLS: u8 = 4;

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
    /// The lease of this node of a fleet has ended, so that the host may have another owner.
    #[error("the lease of this node has ended")]
    LeaseEnded,
}

impl BodyError {
    /// Returns the error type of RFC 9209 section 2.3, which is the value of the `error` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incomplete => "http_response_incomplete",
            Self::ClientLeft => "http_request_error",
            Self::Idle => "connection_read_timeout",
            Self::TooLarge => "http_response_body_size",
            Self::LeaseEnded => "destination_unavailable",
        }
    }
}

/// The body of a response. The observer `G`, which holds the request's record, lives until its end.
#[derive(Debug)]
pub struct ResponseBody<G> {
    content: BodyContent,
    observer: G,
    failed: Option<DelayedFailure>,
}

/// An error of a body, which is reported after everything before it was sent.
#[derive(Clone, Copy, Debug)]
struct DelayedFailure {
    error: BodyError,
    /// `false` if nothing could be sent since the error, because the turn of the task was over.
    could_send: bool,
}

#[derive(Debug)]
enum BodyContent {
    Full(Option<Bytes>),
    Streamed(Box<ResponseDownload>),
    Document(Box<DocumentBody>),
    /// The answer of another node.
    Forwarded(Box<LinkDownload>),
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

    /// Creates the body of an answer by another node of the fleet.
    pub fn forwarded(download: LinkDownload, observer: G) -> Self {
        Self::new(BodyContent::Forwarded(Box::new(download)), observer)
    }

    /// Finishes a body without data at once: hyper never polls it.
    fn new(content: BodyContent, observer: G) -> Self {
        let mut body = Self {
            content,
            observer,
            failed: None,
        };
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
            BodyContent::Forwarded(download) => download.release(),
        }
        self.observer.on_end();
    }

    fn is_over(&self) -> bool {
        match &self.content {
            BodyContent::Full(bytes) => bytes.is_none(),
            BodyContent::Streamed(download) => download.is_over(),
            BodyContent::Document(document) => document.is_over(),
            BodyContent::Forwarded(download) => download.is_end_stream(),
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
        if let Some(failure) = &mut this.failed {
            if failure.could_send {
                return Poll::Ready(Some(Err(failure.error)));
            }
            failure.could_send = !is_turn_over();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = match &mut this.content {
            BodyContent::Full(bytes) => bytes.take().map(|b| Ok(Frame::data(b))),
            BodyContent::Streamed(download) => {
                ready!(download.poll_data(cx)).map(|r| r.map(Frame::data))
            }
            BodyContent::Document(document) => {
                ready!(document.poll_data(cx)).map(|r| r.map(Frame::data))
            }
            BodyContent::Forwarded(download) => ready!(download.poll_data(cx))
                .map(|next| next.map(Frame::data).map_err(|_| BodyError::Incomplete)),
        };
        match &next {
            Some(Ok(frame)) => this
                .observer
                .on_sent(frame.data_ref().map_or(0, |d| d.len() as u64)),
            Some(Err(error)) => {
                this.observer.on_error(*error);
                // hyper drops what it has not sent when it gets an error, even the head. After
                // `Pending` it sends all it can.
                this.failed = Some(DelayedFailure {
                    error: *error,
                    could_send: !is_turn_over(),
                });
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
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
            BodyContent::Streamed(download) => download.size_hint(),
            BodyContent::Document(document) => document.size_hint(),
            BodyContent::Forwarded(download) => download.size_hint(),
        }
    }
}

/// The body of an origin's response and the connection that it arrives on.
///
/// Reading the body drives an HTTP/1 connection. At its end the connection returns to the pool. If
/// it is dropped before, the connection is closed, or the stream of an HTTP/2 connection is reset,
/// which shows the origin that the client has left.
#[derive(Debug)]
pub struct ResponseDownload {
    source: BodySource,
    pool_handle: PoolHandle,
    timers: BodyTimers,
    /// The data that arrived together with the head.
    first: FirstPart,
    /// The number of bytes that may still arrive; `max_body` for responses without a length.
    remaining: u64,
    reuse: ConnectionReuse,
    /// The host's slot, released with the last byte.
    slot: Option<HostSlot>,
    /// The ownership of the host, if this is a node of a fleet.
    ownership: Option<Box<OwnershipWatch>>,
}

/// The part of a body that was read before the response was answered.
#[derive(Debug)]
enum FirstPart {
    /// Nothing was read, or what was read is passed on.
    Unread,
    Data(Bytes),
    /// The body is empty.
    End,
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
        source: BodySource,
        slot: HostSlot,
        ownership: Option<Box<OwnershipWatch>>,
        pool_handle: PoolHandle,
        times: BodyTimeLimits,
    ) -> Self {
        Self {
            source,
            pool_handle,
            timers: BodyTimers::new(times),
            first: FirstPart::Unread,
            remaining: u64::MAX,
            reuse: ConnectionReuse::Allowed,
            slot: Some(slot),
            ownership,
        }
    }

    /// Limits the body: it fails after more than this number of bytes.
    pub fn set_limit(&mut self, bytes: u64) {
        self.remaining = bytes;
    }

    /// Sets the policy's timeouts. Must be called before the first byte is read.
    pub fn set_timeouts(&mut self, timeouts: BodyTimeouts) {
        if let Some(idle) = timeouts.idle {
            self.timers.idle.set_length(idle);
        }
        if let Some(whole) = timeouts.whole {
            self.timers.total.set_length(whole);
        }
    }

    /// Excludes the connection from reuse after this response.
    pub fn forbid_reuse(&mut self) {
        self.reuse = ConnectionReuse::Forbidden;
    }

    /// Returns the next part, for a body that is not forwarded.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.is_over() {
            self.release();
            return None;
        }
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Returns `true` if the whole body has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.source.is_end_stream() && !matches!(self.first, FirstPart::Data(_))
    }

    /// Returns the size of the rest, as far as it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        let rest = self.source.size_hint();
        match (&self.first, rest.exact()) {
            (FirstPart::Data(first), Some(rest)) => SizeHint::with_exact(first.len() as u64 + rest),
            (FirstPart::Unread | FirstPart::End | FirstPart::Data(_), _) => rest,
        }
    }

    /// Reads what has arrived together with the head, so that a body that is broken there is
    /// noticed before the head is sent. Does not wait.
    ///
    /// # Errors
    /// Returns an error if the body is broken at once.
    pub(crate) fn read_first_part(&mut self) -> Result<(), BodyError> {
        if self.source.is_end_stream() {
            return Ok(());
        }
        // The body is polled again when it is sent, and registers the waker of that task.
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match self.poll_part(&mut cx) {
            Poll::Ready(Some(part)) => self.first = FirstPart::Data(part?),
            Poll::Ready(None) => self.first = FirstPart::End,
            Poll::Pending => {}
        }
        Ok(())
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        match std::mem::replace(&mut self.first, FirstPart::Unread) {
            FirstPart::Unread => {}
            FirstPart::Data(part) => return Poll::Ready(Some(Ok(part))),
            FirstPart::End => return Poll::Ready(None),
        }
        if self.timers.may_pass_part(cx)
            && let Poll::Ready(next) = self.poll_part(cx)
        {
            return Poll::Ready(next);
        }
        if let Some(ownership) = &mut self.ownership
            && ownership.poll_broken_off(cx).is_ready()
        {
            return Poll::Ready(Some(Err(self.close(BodyError::LeaseEnded))));
        }
        if self.source.empty_polls() > MAX_EMPTY_POLLS {
            return Poll::Ready(Some(Err(self.origin_failed(BodyError::Incomplete))));
        }
        let error = match ready!(self.timers.poll_expired(&self.pool_handle.clock, cx)) {
            // Possibly the client reads slowly, which is not a failure of the origin.
            ExpiredTimer::Total => self.close(BodyError::Idle),
            // The origin is silent.
            ExpiredTimer::Idle => self.origin_failed(BodyError::Idle),
        };
        Poll::Ready(Some(Err(error)))
    }

    /// Polls the body for its next part, without timers.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        match ready!(self.source.poll_data(cx)) {
            Some(Ok(data)) => {
                self.timers.record_part(data.len());
                if let Some(slot) = &mut self.slot {
                    slot.record_received(data.len());
                }
                let data = self.check_limit(data);
                // hyper does not poll a body again that reports its end.
                if self.source.is_end_stream() {
                    self.release();
                }
                Poll::Ready(Some(data))
            }
            Some(Err(_)) => Poll::Ready(Some(Err(self.origin_failed(BodyError::Incomplete)))),
            None => {
                self.release();
                Poll::Ready(None)
            }
        }
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
        self.source.close();
        self.slot = None;
        error
    }

    /// Releases the slot and the connection after the last byte; may be called more than once.
    pub(crate) fn release(&mut self) {
        match self.reuse {
            ConnectionReuse::Allowed => self.source.release(&self.pool_handle),
            ConnectionReuse::Forbidden => self.source.close(),
        }
        self.slot = None;
    }
}

/// The timers of a body, which hold even if there always is another part.
#[derive(Debug)]
struct BodyTimers {
    idle: LazyTimer,
    total: LazyTimer,
    /// The number of parts that arrived without a pause.
    parts: u32,
    /// The number of bytes in them.
    bytes: usize,
}

/// A timer that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiredTimer {
    Idle,
    Total,
}

impl BodyTimers {
    fn new(times: BodyTimeLimits) -> Self {
        Self {
            idle: LazyTimer::new(times.idle),
            total: LazyTimer::new(times.total),
            parts: 0,
            bytes: 0,
        }
    }

    /// Returns `true` if another part may be passed on in this turn. After [`PARTS_PER_TURN`] parts
    /// or [`BYTES_PER_TURN`] the turn ends.
    fn may_pass_part(&mut self, cx: &mut Context<'_>) -> bool {
        self.parts += 1;
        let may_pass =
            self.parts <= PARTS_PER_TURN && self.bytes < BYTES_PER_TURN && !is_turn_over();
        if !may_pass {
            end_turn(cx);
        }
        may_pass
    }

    fn record_part(&mut self, bytes: usize) {
        self.idle.record_progress();
        self.bytes += bytes;
    }

    /// Polls the timers when no part is passed on.
    fn poll_expired(&mut self, clock: &Clock, cx: &mut Context<'_>) -> Poll<ExpiredTimer> {
        // In a task that is never idle, the runtime may be late with timers.
        let is_busy = std::mem::take(&mut self.parts) > BUSY_PARTS || is_turn_over();
        self.bytes = 0;
        if is_busy && self.total.is_past(clock.now()) || self.total.poll_once(cx).is_ready() {
            return Poll::Ready(ExpiredTimer::Total);
        }
        self.idle.poll(cx).map(|()| ExpiredTimer::Idle)
    }
}
