//! The reading side of the head reader: hyper gets each head completely, and only when it is its
//! turn. The `writer` module implements the other side.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use hyper::rt::{Read, ReadBufCursor};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};

use super::client_socket::ClientSocket;
use super::client_stream::{ClientStream, ClientWatch};
use super::close::{CloseState, HeadRejection};
use super::line::push_encoded;
use super::scan::{
    FollowingBytes, ForeignProtocol, HeadError, HeadLimits, HeadScanner, RequestHead, ScanProgress,
};
use super::service_state::ServiceState;
use super::timer::LazyTimer;
use crate::proxy::read_allowance::{MAX_PARSED, MAX_READ};

/// The head reader's events.
pub trait HeadEvents {
    /// Called when a head is refused. Returns the complete response to send before the connection
    /// closes. `partial` is the part of the head that the reader has.
    fn refusal_response(&self, error: HeadError, partial: &[u8]) -> Bytes;
    /// Called when another protocol is detected. The connection closes without a response.
    fn record_foreign(&self, foreign: ForeignProtocol);
}

impl<T: HeadEvents> HeadEvents for Arc<T> {
    fn refusal_response(&self, error: HeadError, partial: &[u8]) -> Bytes {
        T::refusal_response(self, error, partial)
    }

    fn record_foreign(&self, foreign: ForeignProtocol) {
        T::record_foreign(self, foreign);
    }
}

/// Limits and timeouts of the head reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadReaderSettings {
    pub limits: HeadLimits,
    /// The time from the first byte of a head to its last.
    pub head: Duration,
    /// The time from the end of a response, or the start of the connection, to the first byte of
    /// the next head. It may be exceeded by up to a quarter.
    pub idle: Duration,
    /// The longest time for which a client may accept no bytes of a response. It may be exceeded by
    /// up to a quarter.
    pub write_stall: Duration,
}

/// The receive buffer for bytes that arrive while hyper is not reading.
pub(super) const RECEIVE_ROOM: usize = 4096;

/// A client's socket that passes heads to hyper only completely, only when it is their turn, and
/// only if hyper parses them as the proxy does.
///
/// A head that arrives alone and complete goes straight to hyper's buffer, with one system call and
/// one scan, and without a copy, an allocation or a timer. Everything else is collected in a buffer
/// first.
#[derive(Debug)]
pub struct HeadReader<E> {
    pub(super) stream: ClientStream,
    pub(super) events: E,
    settings: HeadReaderSettings,
    pub(super) service: Arc<ServiceState>,
    pub(super) mode: ReaderMode,
    scan: HeadScanner,
    /// Received bytes that are not passed on yet.
    pub(super) buffer: Vec<u8>,
    /// `true` if a head has begun and its time is running.
    head_begun: bool,
    /// `true` if the connection has carried request bodies. Old clients send an empty line after a
    /// body, possibly late.
    pub(super) had_bodies: bool,
    pub(super) wait_timer: LazyTimer,
    pub(super) stall_timer: LazyTimer,
    /// Detects that the client leaves while its next head waits for its turn. Created only then.
    client_left: Option<ClientLeftFuture>,
}

#[derive(Debug)]
pub(super) enum ReaderMode {
    /// Collects a head.
    Head,
    /// A head is complete and waits until the previous request is finished.
    WaitingForTurn(RequestHead),
    /// Passes on the rest of a head: this number of bytes at the front of the buffer.
    PassHead(usize, FollowingBytes),
    /// Passes on the given number of bytes after a head, unparsed; `u64::MAX` for everything that
    /// follows.
    Passing(u64),
    /// Closes the connection.
    Closing(CloseState),
}

struct ClientLeftFuture(Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for ClientLeftFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientLeftFuture")
    }
}

impl<E: HeadEvents> HeadReader<E> {
    /// Wraps a socket. The service that hyper calls must call [`ServiceState::begin`] for each
    /// request.
    pub fn new(
        client: impl Into<ClientSocket>,
        events: E,
        settings: HeadReaderSettings,
        service: Arc<ServiceState>,
    ) -> Self {
        let client = client.into();
        Self {
            stream: client.stream,
            events,
            settings,
            service,
            mode: ReaderMode::Head,
            scan: HeadScanner::default(),
            buffer: client.unread,
            head_begun: false,
            had_bodies: false,
            wait_timer: LazyTimer::new(settings.idle),
            stall_timer: LazyTimer::new(settings.write_stall),
            client_left: None,
        }
    }

    /// Returns a watch that detects when the client leaves. The socket stays open while a watch
    /// exists.
    pub fn watch(&self) -> ClientWatch {
        self.stream.watch()
    }

    /// Returns the socket with the bytes that were read but not passed on, for use with another
    /// protocol.
    pub fn into_client_socket(self) -> ClientSocket {
        ClientSocket {
            stream: self.stream,
            unread: self.buffer,
        }
    }

    /// Fills `out` with the next bytes for hyper; leaves it empty if the client has left.
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match std::mem::replace(&mut self.mode, ReaderMode::Head) {
                ReaderMode::Head => ready!(self.poll_collect(cx, out))?,
                ReaderMode::WaitingForTurn(head) if self.service.is_idle() => self.prepare(&head),
                ReaderMode::WaitingForTurn(head) => {
                    self.mode = ReaderMode::WaitingForTurn(head);
                    ready!(self.poll_client_left(cx));
                    self.mode = ReaderMode::Closing(CloseState::Closed);
                }
                ReaderMode::PassHead(remaining, follows) => {
                    let remaining = remaining - self.pass_on(remaining, out);
                    self.mode = if remaining > 0 {
                        ReaderMode::PassHead(remaining, follows)
                    } else {
                        pass_through_mode(follows.length())
                    };
                }
                ReaderMode::Passing(remaining) => {
                    self.mode = ReaderMode::Passing(remaining);
                    ready!(self.poll_pass_through(remaining, cx, out))?;
                }
                ReaderMode::Closing(closing) => {
                    ready!(self.poll_close(closing, cx))?;
                    return Poll::Ready(Ok(()));
                }
            }
            if !out.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads until a head is complete or refused, or the client has left, and sets the mode
    /// accordingly.
    fn poll_collect(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty()
            && let Some(mode) = self.check_buffer()
        {
            self.mode = mode;
            return Poll::Ready(Ok(()));
        }
        loop {
            // Bytes that arrive before it is their turn, or after other bytes, must not reach hyper
            // yet.
            let direct = self.buffer.is_empty() && self.service.is_idle();
            let received = if direct {
                self.stream.poll_recv(cx, out)
            } else {
                self.poll_buffer(cx)
            };
            let Poll::Ready(received) = received else {
                ready!(self.poll_silence(cx));
                return Poll::Ready(Ok(()));
            };
            let mode = match received? {
                0 => Some(ReaderMode::Closing(CloseState::Closed)),
                _ if direct => self.check_direct(out),
                _ => self.check_buffer(),
            };
            if let Some(mode) = mode {
                self.mode = mode;
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Checks bytes that were received directly into hyper's buffer. They stay there if they are
    /// one head that needs no change, with nothing beyond its own body; otherwise they move to the
    /// internal buffer. Returns the next mode, or `None` if more bytes are needed.
    fn check_direct(&mut self, out: &mut ReadBuf<'_>) -> Option<ReaderMode> {
        let bytes = out.filled();
        let progress = self.scan.advance(bytes, self.settings.limits);
        if let Ok(ScanProgress::Complete(head)) = &progress
            && !head.needs_rewrite()
            && head.bytes.start == 0
            && let Some(remaining) = head
                .follows
                .length()
                .checked_sub((bytes.len() - head.bytes.end) as u64)
        {
            self.reset_for_next_head(head.follows);
            return Some(pass_through_mode(remaining));
        }
        self.buffer.extend_from_slice(bytes);
        out.clear();
        self.next_mode(progress)
    }

    /// Checks the internal buffer. Returns the next mode, or `None` if more bytes are needed.
    fn check_buffer(&mut self) -> Option<ReaderMode> {
        let progress = self.scan.advance(&self.buffer, self.settings.limits);
        self.next_mode(progress)
    }

    /// Returns the mode after a scan of the buffer, or `None` if more bytes are needed.
    fn next_mode(&mut self, progress: Result<ScanProgress, HeadError>) -> Option<ReaderMode> {
        let mode = match progress {
            Ok(ScanProgress::More) => return None,
            Ok(ScanProgress::Blank) => {
                self.buffer.clear();
                return None;
            }
            Ok(ScanProgress::Complete(head)) => ReaderMode::WaitingForTurn(head),
            Ok(ScanProgress::Foreign(foreign)) => {
                ReaderMode::Closing(CloseState::Due(HeadRejection::Foreign(foreign)))
            }
            Err(error) => ReaderMode::Closing(CloseState::Due(HeadRejection::Head(error))),
        };
        Some(mode)
    }

    /// Puts a complete head at the front of the buffer, in the form for hyper.
    fn prepare(&mut self, head: &RequestHead) {
        let mut length = head.bytes.len();
        if head.needs_rewrite() {
            let bytes = rewrite_request_line(&self.buffer, head);
            length = bytes.len();
            self.buffer.splice(..head.bytes.end, bytes);
        } else {
            self.buffer.drain(..head.bytes.start);
        }
        self.mode = ReaderMode::PassHead(length, head.follows);
        self.reset_for_next_head(head.follows);
    }

    /// Resets the state after a head was passed to hyper.
    fn reset_for_next_head(&mut self, follows: FollowingBytes) {
        if follows == FollowingBytes::Anything {
            self.service.set_last();
        }
        self.had_bodies |= follows != FollowingBytes::Head;
        self.scan = HeadScanner::default();
        self.client_left = None;
        self.start_idle_timer();
    }

    /// Passes on at most `most` bytes from the front of the buffer.
    fn pass_on(&mut self, most: usize, out: &mut ReadBuf<'_>) -> usize {
        let count = most.min(out.remaining()).min(self.buffer.len());
        out.put_slice(self.buffer.get(..count).unwrap_or_default());
        self.buffer.drain(..count);
        if self.buffer.is_empty() && self.buffer.capacity() > 2 * RECEIVE_ROOM {
            self.buffer = Vec::new();
        }
        count
    }

    /// Passes on at most `left` bytes as they arrive. Later bytes stay in the socket.
    fn poll_pass_through(
        &mut self,
        remaining: u64,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper parses chunks byte by byte, so one read of them is enough for a poll.
        let is_unparsed = remaining > u64::MAX / 2;
        let room = if is_unparsed { MAX_PARSED } else { MAX_READ };
        let most = usize::try_from(remaining).unwrap_or(usize::MAX).min(room);
        if !self.buffer.is_empty() {
            let count = self.pass_on(most, out);
            self.record_passed(remaining, count);
            return Poll::Ready(Ok(()));
        }
        ready!(self.service.allowance.poll_available(cx));
        let Poll::Ready(received) = self.stream.poll_recv(cx, &mut (&mut *out).limit(most)) else {
            ready!(self.poll_silence(cx));
            return Poll::Ready(Ok(()));
        };
        match received? {
            0 => self.mode = ReaderMode::Closing(CloseState::Closed),
            received => {
                self.service
                    .allowance
                    .spend(if is_unparsed { MAX_READ } else { received });
                self.record_passed(remaining, received);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn record_passed(&mut self, remaining: u64, count: usize) {
        self.mode = pass_through_mode(remaining.saturating_sub(count as u64));
    }

    /// Ready when the client has been silent for too long; sets the mode. Silence is allowed while
    /// a request is in service.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let begun = !self.buffer.is_empty();
        if !self.service.is_idle() {
            self.start_idle_timer();
        } else if begun && !self.head_begun {
            self.wait_timer.restart(self.settings.head);
        } else if self.head_begun && !begun {
            self.start_idle_timer();
        }
        self.head_begun = begun && self.service.is_idle();
        ready!(self.wait_timer.poll(cx));
        let late = if begun {
            CloseState::Due(HeadRejection::Head(HeadError::Late))
        } else {
            CloseState::Closed
        };
        self.mode = ReaderMode::Closing(late);
        Poll::Ready(())
    }

    /// Starts `timeouts.idle`.
    fn start_idle_timer(&mut self) {
        self.head_begun = false;
        self.wait_timer.set_next_length(self.settings.idle);
    }

    /// Receives into the internal buffer, which most connections never need.
    pub(super) fn poll_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.stream
            .poll_recv_growing(cx, &mut self.buffer, RECEIVE_ROOM)
    }

    /// Ready when the client has left, even if its next head is unread.
    pub(super) fn poll_client_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = &self.stream;
        let leaving = self.client_left.get_or_insert_with(|| {
            let watch = socket.watch();
            ClientLeftFuture(Box::pin(async move { watch.wait_left().await }))
        });
        leaving.0.as_mut().poll(cx)
    }
}

/// Returns the mode if `left` bytes remain before the next head.
fn pass_through_mode(remaining: u64) -> ReaderMode {
    if remaining > 0 {
        ReaderMode::Passing(remaining)
    } else {
        ReaderMode::Head
    }
}

/// Returns the head with those bytes of its target percent-encoded that hyper would refuse, with
/// HTTP/1.1 for a later version, and with an empty query where OPTIONS means the whole server: the
/// sign by which `request_target` recognizes it.
fn rewrite_request_line(buffer: &[u8], head: &RequestHead) -> Vec<u8> {
    const VERSION: &[u8] = b" HTTP/1.1";
    let before = buffer.get(head.bytes.start..head.target.start);
    let target = buffer.get(head.target.clone());
    let after = buffer.get(head.target.end..head.bytes.end);
    let mut bytes = Vec::with_capacity(head.bytes.len() + 2 * head.target.len());
    bytes.extend_from_slice(before.unwrap_or_default());
    push_encoded(target.unwrap_or_default(), &mut bytes);
    if head.concerns_server {
        bytes.push(b'?');
    }
    let mut after = after.unwrap_or_default();
    if head.has_later_version {
        bytes.extend_from_slice(VERSION);
        after = after.get(VERSION.len()..).unwrap_or_default();
    }
    bytes.extend_from_slice(after);
    bytes
}

/// Implements tokio's trait for the reader: only through it can a read go to hyper's own buffer
/// without unsafe code.
struct TokioReadAdapter<'r, E>(&'r mut HeadReader<E>);

impl<E: HeadEvents> AsyncRead for TokioReadAdapter<'_, E> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().0.poll_next(cx, out)
    }
}

impl<E: HeadEvents + Unpin> Read for HeadReader<E> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut TokioIo::new(TokioReadAdapter(self.get_mut()))).poll_read(cx, cursor)
    }
}
